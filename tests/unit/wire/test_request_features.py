from typing import Any

import msgspec
import pytest

from pilothouse.store.advisories.shipped import feature_table
from pilothouse.wire.request_features import RECOGNISED, features_used


def used(**body: Any) -> set[str]:
    fields = msgspec.json.decode(msgspec.json.encode(body), type=dict[str, msgspec.Raw])
    return set(features_used(fields))


def chat(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def test_what_can_be_withheld_is_what_is_recognised() -> None:
    assert {each.name for each in feature_table() if each.withholdable} == RECOGNISED


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "an image? a video_url"}]},
        chat({"type": "text", "text": "hello"}),
        chat({"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}),
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "draw", "arguments": '{"image": 1}'}}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"image": "x"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text"}]}]}]},
        {"prompt": "hello"}, {"prompt": [1, 2, 3]}, {"prompt": ["a", "b"]},
        {"input": "hello"}, {"input": ["a", "b"]},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]},
        {"input": [{"type": "function_call_output", "call_id": "1", "output": "image"}]},
        {"system": [{"type": "text", "text": "x"}]},
        {"response_format": {"type": "text"}}, {"response_format": None}, {"text": {"format": {"type": "text"}}},
        {"tool_choice": "auto"}, {"tool_choice": None}, {"tool_choice": {"type": "auto"}},
        {"tools": [{"type": "function", "function": {"name": "f", "strict": False}}, "odd"]},
        {"guided_json": None}, {"mm_processor_kwargs": None},
    ],
)  # fmt: skip
def test_text_alone(body: dict[str, Any]) -> None:
    assert used(model="m", **body) == set()


@pytest.mark.parametrize(
    "body",
    [
        chat({"type": "image_url", "image_url": {"url": "data:"}}),
        chat({"type": "text", "text": "x"}, {"type": "input_audio", "input_audio": {}}),
        chat({"image_url": "https://x"}),
        chat({"type": "text", "image_url": "https://x"}),
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image"}]}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        {"input": [{"image": "x"}]},
    ],
)
def test_images_and_sound(body: dict[str, Any]) -> None:
    assert used(**body) == {"multimodal"}


@pytest.mark.parametrize(
    "body",
    [
        chat({"type": "video_url", "video_url": {"url": "x"}}),
        chat({"type": "point_cloud", "points": []}),
        chat({"type": 7}),
        chat({"type": []}),
        chat({"type": {"type": "text"}}),
        chat({"type": "image_or_video"}),
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]},
        {"messages": [], "mm_processor_kwargs": {"fps": 1}},
        {"messages": [], "media_io_kwargs": {"video": {}}},
    ],
)
def test_video_and_what_is_not_known(body: dict[str, Any]) -> None:
    assert used(**body) == {"multimodal", "video"}


@pytest.mark.parametrize(
    "body",
    [
        {"response_format": {"type": "json_object"}}, {"response_format": "odd"},
        {"text": {"format": {"type": "json_schema"}}},
        {"guided_regex": "a+"}, {"structured_outputs": {"choice": ["a"]}}, {"grammar": "root ::= x"},
        {"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tool_choice": {"type": "any"}},
        {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]},
        {"tools": [{"type": "function", "name": "f", "strict": True}]},
    ],
)  # fmt: skip
def test_structured_output(body: dict[str, Any]) -> None:
    assert used(messages=[], **body) == {"structured_output"}


def test_names_with_escapes_are_seen_as_the_engine_sees_them() -> None:
    body = b'{"messages": [{"content": [{"\\u0074ype": "\\u0069mage_url"}]}], "tools": [{"\\u0073trict": true}]}'
    assert features_used(msgspec.json.decode(body, type=dict[str, msgspec.Raw])) == {"multimodal", "structured_output"}


def test_a_prompt_that_is_nested_too_deeply_is_an_error_and_not_text() -> None:
    deep = msgspec.Raw(b"[" * 5000 + b"]" * 5000)
    with pytest.raises(RecursionError):
        features_used({"messages": deep})
