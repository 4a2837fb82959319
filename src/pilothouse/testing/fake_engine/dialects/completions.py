"""POST /v1/completions."""

from array import array
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
from pilothouse.testing.fake_engine.dialects.chat import StreamOptions, usage_object, wants_usage
from pilothouse.testing.fake_engine.errors import bad_request
from pilothouse.testing.fake_engine.scripts import UsageReport
from pilothouse.testing.fake_engine.tokens import tokenize

_DEFAULT_MAX_TOKENS = 16  # as the OpenAI API


class CompletionBody(msgspec.Struct, frozen=True):
    """The fields that the engine looks at; others are taken and ignored."""

    prompt: Any
    model: str | None = None
    max_tokens: int | None = _DEFAULT_MAX_TOKENS
    n: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    seed: int | None = None
    cache_salt: str | None = None


def parse(data: bytes) -> TextRequest:
    """Read a request. Raises RequestRefusedError."""
    body = decode(data, CompletionBody)
    return TextRequest(
        model=body.model,
        prompts=prompts_of(body.prompt, "prompt"),
        max_tokens=limit(body.max_tokens, "max_tokens"),
        n=choices(body.n),
        stop=stop_strings(body.stop),
        stream=bool(body.stream),
        include_usage=wants_usage(body.stream, body.stream_options),
        seed=body.seed or 0,
        salt=body.cache_salt or "",
    )


def prompts_of(value: Any, param: str) -> "list[array[int]]":
    """Prompts as token ids: one text, several, one list of ids, or several. Raises RequestRefusedError."""
    if isinstance(value, str):
        prompts = [tokenize(value)]
    elif not isinstance(value, list):
        raise bad_request(f"1 validation error: `{param}` must be a string or a list", param)
    elif value and all(isinstance(item, int) for item in value):
        prompts = [_ids(value, param)]
    else:
        prompts = [tokenize(item) if isinstance(item, str) else _ids(item, param) for item in value]
    if not prompts or not all(prompts):
        raise bad_request(f"{param} must not be empty.", param)
    return prompts


def _ids(value: Any, param: str) -> "array[int]":
    try:
        return array("I", value)
    except (TypeError, OverflowError):
        raise bad_request(f"1 validation error: `{param}` must hold texts or token ids", param) from None


class CompletionWriter:
    """Writes `text_completion` objects, whole and in parts."""

    def __init__(self, request: TextRequest, request_id: str, created: int, model: str) -> None:
        self._id = f"cmpl-{request_id}"
        self._created = created
        self._model = model
        self._include_usage = request.include_usage
        self._head = b'data: {"id":%b,"object":"text_completion","created":%d,"model":%b,"choices":[' % (
            json_string(self._id),
            created,
            json_string(model),
        )

    def opening(self, usage: Usage) -> list[bytes]:
        """Nothing: the first token comes first."""
        return []

    def token(self, index: int, text: str, answer: Answer | None) -> list[bytes]:
        """One part; the last carries the reason."""
        reason = b'"finish_reason":null,"stop_reason":null'
        if answer is not None:
            stop = b"null" if answer.stop is None else json_string(answer.stop)
            reason = b'"finish_reason":%b,"stop_reason":%b' % (json_string(answer.finish_reason), stop)
        choice = b'{"index":%d,"text":%b,"logprobs":null,%b}]}\n\n' % (index, json_string(text), reason)
        return [self._head + choice]

    def closing(self, usage: Usage, answers: Sequence[Answer], report: UsageReport) -> list[bytes]:
        """The usage part, if the client asked for it."""
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
        """One `text_completion`."""
        value = {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._model,
            "choices": [
                {
                    "index": index,
                    "text": answer.text,
                    "logprobs": None,
                    "finish_reason": answer.finish_reason,
                    "stop_reason": answer.stop,
                }
                for index, answer in enumerate(answers)
            ],
        }
        return with_usage(value, usage_object(usage), report)
