"""How a stream ends that the filter stops, in each dialect: a finish reason, then the error."""

from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.model.ids import RequestId
from pilothouse.wire import anthropic, openai

_encode = msgspec.json.Encoder().encode

Ending = tuple[bytes, bytes | None]
"""(data, name of the event)."""


def endings(
    head: dict[str, Any], lanes: Sequence[Hashable], refusal: Refusal, *, messages: bool, request_id: str
) -> list[Ending]:
    """The last events.

    Args:
        head: What the stream's events repeat: id, object, model; or the response object of the responses dialect.
        lanes: The choices or blocks that were begun.
        refusal: Why.
        messages: Whether it is the messages dialect.
        request_id: The turn's id, which that dialect's errors tell.
    """
    if messages:
        return _of_messages(lanes, refusal, request_id)
    if head.get("object") == "response":
        return _of_responses(head, refusal)
    return _of_choices(head, lanes, refusal)


def _of_choices(head: dict[str, Any], lanes: Sequence[Hashable], refusal: Refusal) -> list[Ending]:
    is_chat = str(head.get("object", "chat.completion.chunk")).startswith("chat")
    content: dict[str, Any] = {"delta": {}} if is_chat else {"text": ""}
    choices = [
        {"index": lane, **content, "logprobs": None, "finish_reason": "content_filter"}
        for lane in lanes or (0,)
        if isinstance(lane, int)
    ]
    return [(_encode({**head, "choices": choices}), None), (openai.error_body(refusal), None)]


def _of_responses(head: dict[str, Any], refusal: Refusal) -> list[Ending]:
    response = {**head, "status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    ended = {"type": "response.incomplete", "response": response}
    error = {"type": "error", "code": refusal.code, "message": refusal.message, "param": None}
    return [(_encode(ended), b"response.incomplete"), (_encode(error), b"error")]


def _of_messages(lanes: Sequence[Hashable], refusal: Refusal, request_id: str) -> list[Ending]:
    stops: list[Ending] = [
        (_encode({"type": "content_block_stop", "index": lane}), b"content_block_stop") for lane in lanes[-1:]
    ]
    delta = {
        "type": "message_delta",
        "delta": {"stop_reason": "refusal", "stop_sequence": None},
        "usage": {"output_tokens": 0},
    }
    return [
        *stops,
        (_encode(delta), b"message_delta"),
        (anthropic.error_body(refusal, RequestId(request_id)), b"error"),
    ]
