"""POST /v1/messages: the Anthropic API."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pilothouse.model.requests import Usage
from pilothouse.testing.fake_engine.dialects.base import (
    Answer,
    TextRequest,
    decode,
    event,
    json_string,
    limit,
    stop_strings,
    with_usage,
)
from pilothouse.testing.fake_engine.dialects.prompts import Message, chat_tokens
from pilothouse.testing.fake_engine.errors import bad_request
from pilothouse.testing.fake_engine.scripts import UsageReport

_STOP_REASONS = {"length": "max_tokens", "stop": "end_turn"}


class MessagesBody(msgspec.Struct, frozen=True):
    """The fields that the engine looks at; others are taken and ignored."""

    messages: list[Message]
    max_tokens: int
    model: str | None = None
    system: Any = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    tools: list[Any] | None = None


def parse(data: bytes) -> TextRequest:
    """Read a request. Raises RequestRefusedError."""
    body = decode(data, MessagesBody)
    if not body.messages:
        raise bad_request("messages must not be empty.", "messages")
    return TextRequest(
        model=body.model,
        prompts=[chat_tokens(body.messages, system=body.system, tools=body.tools)],
        max_tokens=limit(body.max_tokens, "max_tokens"),
        stop=stop_strings(body.stop_sequences),
        stream=bool(body.stream),
        include_usage=True,
    )


class MessagesWriter:
    """Writes `message` objects and the events that build one."""

    def __init__(self, request: TextRequest, request_id: str, created: int, model: str) -> None:
        self._id = f"msg_{request_id}"
        self._model = model

    def opening(self, usage: Usage) -> list[bytes]:
        """The message with what was read, and its one block, empty."""
        message = {**self._message([], None), "usage": _usage_object(usage)}
        return [
            _event("message_start", message=message),
            _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        ]

    def token(self, index: int, text: str, answer: Answer | None) -> list[bytes]:
        """One delta."""
        return [
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
            b'"delta":{"type":"text_delta","text":%b}}\n\n' % json_string(text)
        ]

    def closing(self, usage: Usage, answers: Sequence[Answer], report: UsageReport) -> list[bytes]:
        """The end of the block, the reason with the usage, the end of the message."""
        delta = {"stop_reason": _reason(answers[0]), "stop_sequence": answers[0].stop}
        return [
            _event("content_block_stop", index=0),
            _event("message_delta", **with_usage({"delta": delta}, _usage_object(usage), report)),
            _event("message_stop"),
        ]

    def done(self) -> list[bytes]:
        """`message_stop` says it already."""
        return []

    def error(self, body: dict[str, Any]) -> list[bytes]:
        """An `error` event."""
        return [event(msgspec.json.encode(body), "error")]

    def whole(self, usage: Usage, answers: Sequence[Answer], report: UsageReport) -> dict[str, Any]:
        """One `message`."""
        value = self._message([{"type": "text", "text": answers[0].text}], answers[0])
        return with_usage(value, _usage_object(usage), report)

    def _message(self, content: list[dict[str, Any]], answer: Answer | None) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self._model,
            "stop_reason": None if answer is None else _reason(answer),
            "stop_sequence": None if answer is None else answer.stop,
        }


def _event(name: str, **fields: Any) -> bytes:
    return event(msgspec.json.encode({"type": name, **fields}), name)


def _reason(answer: Answer) -> str:
    if answer.stop is not None:
        return "stop_sequence"
    return _STOP_REASONS.get(answer.finish_reason, answer.finish_reason)


def _usage_object(usage: Usage) -> dict[str, Any]:
    # Anthropic counts what came from the cache apart from the input.
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
    }
