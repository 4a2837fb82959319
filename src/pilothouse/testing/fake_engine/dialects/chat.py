"""POST /v1/chat/completions."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pilothouse.model.requests import Usage
from pilothouse.testing.fake_engine.dialects.base import (
    Answer,
    TextRequest,
    choices,
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


class StreamOptions(msgspec.Struct, frozen=True):
    """`stream_options` of the OpenAI API."""

    include_usage: bool | None = None


class ChatBody(msgspec.Struct, frozen=True):
    """The fields that the engine looks at; others are taken and ignored."""

    messages: list[Message]
    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    seed: int | None = None
    cache_salt: str | None = None
    tools: list[Any] | None = None


def parse(data: bytes) -> TextRequest:
    """Read a request. Raises RequestRefusedError."""
    body = decode(data, ChatBody)
    if not body.messages:
        raise bad_request("messages must not be empty.", "messages")
    # As vLLM: the newer name wins.
    max_tokens = limit(body.max_tokens, "max_tokens")
    if body.max_completion_tokens is not None:
        max_tokens = limit(body.max_completion_tokens, "max_completion_tokens")
    return TextRequest(
        model=body.model,
        prompts=[chat_tokens(body.messages, tools=body.tools)],
        max_tokens=max_tokens,
        n=choices(body.n),
        stop=stop_strings(body.stop),
        stream=bool(body.stream),
        include_usage=wants_usage(body.stream, body.stream_options),
        seed=body.seed or 0,
        salt=body.cache_salt or "",
    )


def wants_usage(stream: bool | None, options: StreamOptions | None) -> bool:
    """Whether a stream reports its usage. Raises RequestRefusedError when asked without streaming."""
    if options is not None and not stream:
        raise bad_request("Stream options can only be defined when `stream=True`.", "stream_options")
    return options is not None and bool(options.include_usage)


def usage_object(usage: Usage) -> dict[str, Any]:
    """`usage` of the OpenAI API."""
    return {
        "prompt_tokens": usage.input_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class ChatWriter:
    """Writes `chat.completion` objects and `chat.completion.chunk` events."""

    def __init__(self, request: TextRequest, request_id: str, created: int, model: str) -> None:
        self._id = f"chatcmpl-{request_id}"
        self._created = created
        self._model = model
        self._choices = request.n
        self._include_usage = request.include_usage
        self._head = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":[' % (
            json_string(self._id),
            created,
            json_string(model),
        )

    def opening(self, usage: Usage) -> list[bytes]:
        """The role, for each choice."""
        return [
            self._head + b'{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,'
            b'"finish_reason":null}]}\n\n' % index
            for index in range(self._choices)
        ]

    def token(self, index: int, text: str, answer: Answer | None) -> list[bytes]:
        """One chunk; the last carries the reason."""
        tail = b'"finish_reason":null}]}\n\n'
        if answer is not None:
            stop = b"null" if answer.stop is None else json_string(answer.stop)
            tail = b'"finish_reason":%b,"stop_reason":%b}]}\n\n' % (json_string(answer.finish_reason), stop)
        head = self._head + b'{"index":%d,"delta":{"content":' % index
        return [b'%b%b},"logprobs":null,%b' % (head, json_string(text), tail)]

    def closing(self, usage: Usage, answers: Sequence[Answer], report: UsageReport) -> list[bytes]:
        """The usage chunk, if the client asked for it."""
        if not self._include_usage or report == "omit":
            return []
        value = b"null" if report == "null" else msgspec.json.encode(usage_object(usage))
        return [self._head + b'],"usage":%b}\n\n' % value]

    def done(self) -> list[bytes]:
        """[DONE]"""
        return [b"data: [DONE]\n\n"]

    def error(self, body: dict[str, Any]) -> list[bytes]:
        """The error object as an event."""
        return [event(msgspec.json.encode(body))]

    def whole(self, usage: Usage, answers: Sequence[Answer], report: UsageReport) -> dict[str, Any]:
        """One `chat.completion`."""
        value = {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._model,
            "choices": [
                {
                    "index": index,
                    "message": {"role": "assistant", "content": answer.text, "refusal": None, "tool_calls": []},
                    "logprobs": None,
                    "finish_reason": answer.finish_reason,
                    "stop_reason": answer.stop,
                }
                for index, answer in enumerate(answers)
            ],
        }
        return with_usage(value, usage_object(usage), report)
