"""An answer put together from its stream is the one that the engine would have given."""

import json
from typing import Any

import pytest

from pilothouse.model.requests import Route
from pilothouse.wire.assembly import Assembly


def chunk(delta: dict[str, Any], *, index: int = 0, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return event({"id": "c-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more})


def event(fields: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def assembled(*events: bytes, route: Route = Route.CHAT_COMPLETIONS) -> dict[str, Any]:
    assembly = Assembly(route)
    for each in events:
        assembly.feed(each, last=False)
    assembly.feed(b"data: [DONE]\n\n", last=True)
    assert assembly.failure is None
    answer: dict[str, Any] = json.loads(assembly.answer())
    return answer


def test_text_is_appended_and_the_rest_is_carried_over() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    answer = assembled(
        chunk({"role": "assistant", "content": None}, prompt_progress={"total": 3}),
        chunk({"role": "assistant", "content": None}),
        chunk({"content": "the "}),
        chunk({"content": "sea"}),
        chunk({}, finish="stop", timings={"predicted_n": 2}),
        event({"id": "c-1", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": usage}),
    )
    assert answer == {
        "id": "c-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "the sea"}}],
        "timings": {"predicted_n": 2},
        "usage": usage,
    }


def test_choices_are_kept_apart_and_in_order() -> None:
    answer = assembled(
        chunk({"content": "b"}, index=1),
        chunk({"content": "a"}, index=0),
        chunk({"content": "b"}, index=1, finish="length"),
    )
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["a", "bb"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == [None, "length"]


def test_tool_calls_grow_by_their_index_and_lose_it() -> None:
    first = {"index": 0, "id": "call-1", "type": "function", "function": {"name": "f", "arguments": ""}}
    second = {"index": 1, "id": "call-2", "type": "function", "function": {"name": "g", "arguments": "{}"}}
    answer = assembled(
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}),
        chunk({"tool_calls": [second]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}, finish="tool_calls"),
    )
    message = answer["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"] == [
        {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "call-2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


def test_reasoning_and_logprobs_are_joined() -> None:
    def with_logprob(token: str) -> bytes:
        logprobs = {"content": [{"token": token, "logprob": -0.5}]}
        choice = {
            "index": 0,
            "delta": {"content": token},
            "logprobs": logprobs,
            "finish_reason": None,
            "x": token == "b",
        }
        return event({"id": "c-1", "choices": [choice]})

    answer = assembled(
        chunk({"reasoning_content": "so "}), chunk({"reasoning_content": "what"}), with_logprob("a"), with_logprob("b")
    )
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "ab", "reasoning_content": "so what"}
    assert choice["x"] is True, "of what cannot be added up the last counts"
    assert [each["token"] for each in choice["logprobs"]["content"]] == ["a", "b"]


def test_a_text_completion_has_text_and_no_message() -> None:
    def text(piece: str, finish: str | None) -> bytes:
        choice = {"index": 0, "text": piece, "finish_reason": finish}
        return event({"id": "t-1", "object": "text_completion", "choices": [choice]})

    answer = assembled(text("one ", None), text("two", "stop"), route=Route.COMPLETIONS)
    choices = [{"index": 0, "text": "one two", "finish_reason": "stop"}]
    assert answer == {"id": "t-1", "object": "text_completion", "choices": choices}


@pytest.mark.parametrize("size", [1, 7, 40])
def test_it_may_arrive_in_any_pieces(size: int) -> None:
    stream = chunk({"content": "a é "}) + b": comment\n\n" + chunk({"content": "b"}, finish="stop")
    assembly = Assembly(Route.CHAT_COMPLETIONS)
    for start in range(0, len(stream), size):
        assembly.feed(stream[start : start + size], last=False)
    assembly.feed(b"", last=True)
    assert json.loads(assembly.answer())["choices"][0]["message"]["content"] == "a é b"


def test_an_error_among_the_chunks_is_the_failure() -> None:
    assembly = Assembly(Route.CHAT_COMPLETIONS)
    error = event({"error": {"code": 400, "message": "no"}})
    assembly.feed(chunk({"content": "a"}) + error + chunk({"content": "b"}), last=False)
    assert assembly.failure == error


@pytest.mark.parametrize(
    "data", [b"{", b"7", b'{"choices":[7]}', b'{"choices":7}', b'{"choices":[{"index":[]}]}', b'{"a":' + b"[" * 100_000]
)
def test_what_is_no_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a chunk of a completion"):
        Assembly(Route.CHAT_COMPLETIONS).feed(b"data: %b\n\n" % data, last=False)
