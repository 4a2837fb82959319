"""Which features a request uses, of those that the gateway can keep away from a deployment.

What is not known to be harmless counts as using a feature: a part of an unknown type is taken for images and for video.
Nothing is refused here for its form; that is the engine's to judge.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

MULTIMODAL, VIDEO, STRUCTURED_OUTPUT = "multimodal", "video", "structured_output"
RECOGNISED = frozenset({MULTIMODAL, VIDEO, STRUCTURED_OUTPUT})

_PROMPTS = ("messages", "input", "system", "prompt")
_MEDIA_OPTIONS = ("mm_processor_kwargs", "media_io_kwargs", "multi_modal_data")
_PLAIN_PARTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal"})
_PLAIN_ITEMS = frozenset(
    {
        "message", "reasoning", "thinking", "redacted_thinking", "item_reference",
        "function", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
        "tool_use", "tool_result", "ephemeral",
    }
)  # fmt: skip
_PLAIN = _PLAIN_PARTS | _PLAIN_ITEMS
_STILL = re.compile(r"(?!.*video).*(image|audio)")
_MEDIA = re.compile(r"image|audio|video|media|file|document|pixel|mm_", re.IGNORECASE)
_GRAMMARS = ("structured_outputs", "grammar", "json_schema", "output_format", "output_config")
_FREE_CHOICES = (None, "auto", "none")

_decode = msgspec.json.Decoder().decode


def features_used(fields: Mapping[str, msgspec.Raw]) -> frozenset[str]:
    """The features of `RECOGNISED` that a body with these top-level fields uses.

    Raises:
        msgspec.DecodeError, RecursionError: a field that has to be looked at is not JSON, or nested too deeply.
    """
    found = {STRUCTURED_OUTPUT} if _asks_for_structure(fields) else set[str]()
    if any(_is_given(fields, name) for name in _MEDIA_OPTIONS):
        found |= {MULTIMODAL, VIDEO}
    for name in _PROMPTS:
        if name in fields:
            found.update(_media(_decode(fields[name])))
    return frozenset(found)


def _media(value: Any) -> Iterator[str]:
    """The features that a prompt's parts use, nested ones too."""
    if isinstance(value, list):
        for each in value:
            yield from _media(each)
    elif isinstance(value, dict):
        kind = value.get("type")
        if kind is not None and not (isinstance(kind, str) and kind in _PLAIN):
            yield from _named(str(kind))
        for key, each in value.items():
            if kind == "tool_use" and key == "input":
                continue  # a tool's arguments, whatever they are called
            if _MEDIA.search(key):
                yield from _named(key)
            elif isinstance(each, list | dict):
                yield from _media(each)


def _named(name: str) -> Iterable[str]:
    return (MULTIMODAL,) if _STILL.match(name) else (MULTIMODAL, VIDEO)


def _asks_for_structure(fields: Mapping[str, msgspec.Raw]) -> bool:
    if any(name.startswith("guided_") and _is_given(fields, name) for name in fields):
        return True
    if any(_is_given(fields, name) for name in _GRAMMARS):
        return True
    choice = _decode(fields.get("tool_choice", b"null"))
    if (choice.get("type") if isinstance(choice, dict) else choice) not in _FREE_CHOICES:
        return True
    text = _decode(fields.get("text", b"null"))
    formats = [_decode(fields.get("response_format", b"null")), text.get("format") if isinstance(text, dict) else None]
    if any(each is not None and not (isinstance(each, dict) and each.get("type") == "text") for each in formats):
        return True
    tools = _decode(fields.get("tools", b"null"))
    return isinstance(tools, list) and any(map(_is_strict, tools))


def _is_strict(tool: Any) -> bool:
    """Whether a tool's arguments have to follow its schema, in any of the dialects."""
    if not isinstance(tool, dict):
        return False
    inner = tool.get("function")
    return bool(tool.get("strict") or (isinstance(inner, dict) and inner.get("strict")))


def _is_given(fields: Mapping[str, msgspec.Raw], name: str) -> bool:
    return name in fields and bytes(fields[name]) != b"null"
