"""Where the text is in one event of a stream, in each of the dialects.

An event that brings text of several choices or kinds is taken apart. What is not known is searched whole: a dialect's
new kind of event is no way around the filter.
"""

import copy
import re
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

_TELLING = ("logprobs", "token_ids", "prompt_logprobs", "prompt_token_ids")
"""Fields that tell the text beside them once more."""
_NOT_TEXT = frozenset({"role", "id", "type", "name", "index"})
_JSON_DELTAS = ("function_call_arguments", "mcp_call_arguments")
_BINARY_DELTAS = ("audio.delta", "partial_image")
_CLOSES_ALL = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "message_delta", "message_stop", "error"}
)
_MESSAGE_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class Part(msgspec.Struct):
    """A piece of one text.

    Attributes:
        lane: What is told in order: a choice, or a block or item of an answer.
        channel: Which text of the lane.
        json_source: Whether the text is JSON source, as a tool call's arguments are.
        text: The text.
        place: The mapping and key that hold it.
        choice: The choice that it belongs to, where the dialect has choices.
    """

    lane: Hashable
    channel: Hashable
    json_source: bool
    text: str
    place: tuple[dict[str, Any], str]
    choice: dict[str, Any] | None = None


class Reading(msgspec.Struct):
    """What an event is to the filter.

    Attributes:
        parts: Its pieces of text.
        closes: The lanes that end with it; `closes_all` if all do.
        lane: The lane an event without text belongs to.
        whole: Whether all of its strings are to be searched, each as a text of its own.
    """

    parts: list[Part] = []
    closes: list[Hashable] = []
    closes_all: bool = False
    lane: Hashable | None = None
    whole: bool = False


def read_event(event: dict[str, Any]) -> Reading:
    """Find the text in an event."""
    choices = event.get("choices")
    if isinstance(choices, list):
        return _read_choices(choices)
    kind = event.get("type")
    if isinstance(kind, str) and kind.startswith("content_block"):
        return _read_block(event, kind)
    if isinstance(kind, str) and kind.endswith(".delta") and isinstance(event.get("delta"), str):
        return _read_response_delta(event, kind)
    lane = event.get("output_index")
    closes: list[Hashable] = [lane] if isinstance(lane, int) and str(kind).endswith(".done") else []
    return Reading(closes=closes, closes_all=kind in _CLOSES_ALL, whole=True)


def _read_choices(choices: list[Any]) -> Reading:
    reading = Reading(parts=[], closes=[])
    for choice in choices:
        if not isinstance(choice, dict):
            continue
        lane = choice.get("index", 0)
        if reading.lane is None:
            reading.lane = lane
        holder = choice.get("delta")
        if isinstance(holder, dict):
            reading.parts += _read_delta(holder, choice, lane)
        if isinstance(choice.get("text"), str) and choice["text"]:
            reading.parts.append(Part(lane, "text", False, choice["text"], (choice, "text"), choice))
        if choice.get("finish_reason") is not None:
            reading.closes.append(lane)
    return reading


def _read_delta(delta: dict[str, Any], choice: dict[str, Any], lane: Hashable) -> list[Part]:
    parts = []
    for key, value in delta.items():
        if isinstance(value, str):
            if value and key not in _NOT_TEXT:
                parts.append(Part(lane, key, False, value, (delta, key), choice))
        elif key == "tool_calls" and isinstance(value, list):
            for call in value:
                called = call.get("function") if isinstance(call, dict) else None
                if isinstance(called, dict) and isinstance(called.get("arguments"), str) and called["arguments"]:
                    channel = ("tool_calls", call.get("index", 0))
                    parts.append(Part(lane, channel, True, called["arguments"], (called, "arguments"), choice))
        elif isinstance(value, dict):
            for inner, text in value.items():
                if isinstance(text, str) and text and inner in ("arguments", "transcript", "text"):
                    parts.append(Part(lane, (key, inner), inner == "arguments", text, (value, inner), choice))
    return parts


def _read_block(event: dict[str, Any], kind: str) -> Reading:
    lane = event.get("index", 0)
    if kind == "content_block_stop":
        return Reading(closes=[lane], lane=lane)
    delta = event.get("delta")
    key = _MESSAGE_TEXTS.get(str(delta.get("type"))) if isinstance(delta, dict) else None
    if isinstance(delta, dict) and key is not None and isinstance(delta.get(key), str):
        if not delta[key]:
            return Reading(lane=lane)
        return Reading(parts=[Part(lane, key, key == "partial_json", delta[key], (delta, key))], lane=lane)
    return Reading(lane=lane, whole=True)


def _read_response_delta(event: dict[str, Any], kind: str) -> Reading:
    lane = event.get("output_index", 0)
    if any(each in kind for each in _BINARY_DELTAS) or not event["delta"]:
        return Reading(lane=lane)
    channel = (kind, event.get("item_id"), event.get("content_index"), event.get("summary_index"))
    is_json = any(each in kind for each in _JSON_DELTAS)
    return Reading(parts=[Part(lane, channel, is_json, event["delta"], (event, "delta"))], lane=lane)


def rewritten(event: dict[str, Any], part: Part, text: str) -> dict[str, Any]:
    """The event with another text in the place of `part`. What else would tell the old text goes."""
    holder, key = part.place
    holder[key] = text
    for place in (event, part.choice, holder):
        if place is not None:
            for telling in (*_TELLING, "obfuscation"):
                if place.get(telling) is not None:
                    place[telling] = None if telling != "logprobs" or place is not event else []
    return event


def tells_tokens(event: dict[str, Any], part: Part) -> bool:
    """Whether the event has log-probabilities or token ids of its text, which cannot be divided with it."""
    places = (event, part.choice or {}, part.place[0])
    return any(place.get(telling) for place in places for telling in _TELLING)


def taken_apart(event: dict[str, Any], reading: Reading) -> list[dict[str, Any]]:
    """One event for each part of a chat or completion event with several, and one for the rest if it says anything."""
    events = []
    for part in reading.parts:
        choice = part.choice or {}
        holder, key = part.place
        alone = {name: value for name, value in event.items() if name not in ("choices", "usage")}
        own = {name: value for name, value in choice.items() if name not in ("delta", "text")}
        own["finish_reason"] = None
        if holder is choice:
            own["text"] = part.text
        else:
            own["delta"] = _delta_with(choice["delta"], holder, key)
        alone["choices"] = [own]
        events.append(copy.deepcopy(alone))
    if reading.closes or event.get("usage") is not None:
        rest = copy.deepcopy(event)
        for choice in rest["choices"]:
            if "delta" in choice:
                choice["delta"] = {}
            if "text" in choice:
                choice["text"] = ""
            choice["logprobs"] = None
        events.append(rest)
    return events


def _delta_with(delta: dict[str, Any], holder: dict[str, Any], key: str) -> dict[str, Any]:
    """The delta with that one text alone."""
    kept: dict[str, Any] = {"role": delta["role"]} if "role" in delta else {}
    if holder is delta:
        return {**kept, key: delta[key]}
    for name, value in delta.items():
        if value is holder:
            return {**kept, name: value}
        if isinstance(value, list):
            for call in value:
                if isinstance(call, dict) and call.get("function") is holder:
                    return {**kept, name: [call]}
    return kept


_SKIPPED_KEYS = frozenset(
    {
        *(
            "id",
            "object",
            "type",
            "role",
            "model",
            "name",
            "status",
            "index",
            "created",
            "finish_reason",
            "stop_reason",
        ),
        *("tool_call_id", "tool_use_id", "call_id", "item_id", "response_id", "previous_response_id", "media_type"),
        *("system_fingerprint", "service_tier", "signature", "encrypted_content", "detail", "format", "b64_json"),
        *("tools", "tool_choice", "response_format", "logit_bias", "stop", "metadata", "user", "safety_identifier"),
        *("prompt_cache_key", "encoding_format", "reasoning_effort", "cache_control", "usage", "file_id"),
    }
)
"""What is structure, not text: changing it would break the call."""
_JSON_KEYS = frozenset({"arguments", "partial_json"})
_OBJECT_KEYS = frozenset({"input", "arguments"})
_BINARY = re.compile(r"data:[a-z0-9.+\-/]*;base64,[A-Za-z0-9+/=_\-]*")
"""An image or sound in the text of a URL. Anything else that begins like it is text."""

Search = Callable[[str, bool], str]
"""From (text, whether it is JSON source) to the text to send."""


Places = frozenset[tuple[int, str]]
"""(id of a mapping, key) of texts that are searched elsewhere."""


def search_rest(event: dict[str, Any], reading: Reading, search: Search) -> Any:
    """The event with all texts searched that are none of its parts; the same object if nothing changed.

    Choices that bring no text lose what tells tokens: those may be of a text that is still to come.
    """
    stripped = False
    for choice in event["choices"]:
        if isinstance(choice, dict) and not any(part.choice is choice for part in reading.parts):
            telling = [key for key in _TELLING if choice.get(key)]
            choice.update(dict.fromkeys(telling))
            stripped = stripped or bool(telling)
    places = {(id(part.place[0]), part.place[1]) for part in reading.parts}
    places |= {(id(part.choice), key) for part in reading.parts for key in _TELLING if part.choice is not None}
    searched = search_strings(event, search, elsewhere=frozenset(places))
    return {**event} if stripped and searched is event else searched


def search_strings(value: Any, search: Search, *, numbers: bool = False, elsewhere: Places = frozenset()) -> Any:
    """The value with every text in it searched; the same object if nothing changed.

    `numbers`: whether numbers are searched too, as in a tool's input.
    """
    if isinstance(value, str):
        return value if value.startswith("data:") and _BINARY.fullmatch(value) else search(value, False)
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        said = str(value)
        found = search(said, False)
        return value if found == said else found
    if isinstance(value, list):
        items = [search_strings(each, search, numbers=numbers, elsewhere=elsewhere) for each in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if isinstance(value, dict):
        return _search_mapping(value, search, numbers=numbers, elsewhere=elsewhere)
    return value


def _search_mapping(value: dict[str, Any], search: Search, *, numbers: bool, elsewhere: Places) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    binary = value.get("type") == "base64" or "format" in value
    for key, each in value.items():
        if (not numbers and key in _SKIPPED_KEYS) or (key == "data" and binary) or (id(value), key) in elsewhere:
            continue
        if key in _JSON_KEYS and isinstance(each, str):
            new: Any = search(each, True)
        else:
            inside = numbers or (key in _OBJECT_KEYS and isinstance(each, dict))
            new = search_strings(each, search, numbers=inside, elsewhere=elsewhere)
        if new is not each:
            changed[key] = new
    if changed:
        # They would tell the text that was changed.
        for telling in _TELLING:
            if value.get(telling) is not None:
                changed[telling] = None if not isinstance(value[telling], list) else []
    return {**value, **changed} if changed else value
