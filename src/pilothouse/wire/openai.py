"""The OpenAI dialect: error objects, the model list, and the few things a gateway reads in answers."""

import enum
import json

import msgspec

from pilothouse.model.errors import Category, ErrorSpec, Refusal
from pilothouse.model.fleet import ModelView
from pilothouse.model.requests import Usage
from pilothouse.wire import sse

_ERROR_TYPES = {
    Category.CLIENT: "invalid_request_error",
    Category.AUTH: "authentication_error",
    Category.CAPACITY: "service_unavailable_error",
    Category.UPSTREAM: "upstream_error",
}

MAX_PARSED_ANSWER_BYTES = 1024 * 1024
"""Up to 1 MiB an answer is decoded whole to find its usage; in a longer one only the usage is looked for."""

_USAGE = b'"usage"'

_UNDECODABLE = (msgspec.MsgspecError, RecursionError)
"""What msgspec raises on what is not JSON of the expected shape, and on what is nested too deeply to look at."""


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    """Usage in any of the dialects: chat and completions, responses, messages."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    input_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    output_tokens_details: _OutputDetails | None = None
    cache_read_input_tokens: int | None = None


class _Answer(msgspec.Struct):
    usage: _Usage | None = None


class _Choice(msgspec.Struct):
    delta: dict[str, msgspec.Raw] | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Wrapped(msgspec.Struct):
    """Where the responses and messages dialects put usage inside a stream."""

    usage: _Usage | None = None


class _Event(msgspec.Struct):
    """One event of a stream, in any of the dialects."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()
    type: str | None = None
    response: _Wrapped | None = None
    message: _Wrapped | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def error_type(spec: ErrorSpec) -> str:
    """The `type` of the error object for a row of the error table."""
    return _ERROR_TYPES.get(spec.category, "server_error")


def error_body(refusal: Refusal) -> bytes:
    """`{"error": {message, type, param, code}}`, as OpenAI's API reference has it."""
    error = {
        "message": refusal.message,
        "type": error_type(refusal.spec),
        "param": refusal.param,
        "code": refusal.code,
    }
    return _encode({"error": error})


def error_event(refusal: Refusal) -> bytes:
    """The error object as an event inside a stream; the official clients raise on it."""
    return sse.event(error_body(refusal))


def model_object(model: ModelView) -> dict[str, object]:
    """One entry of /v1/models."""
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "pilothouse"}


def model_list(models: tuple[ModelView, ...]) -> bytes:
    """The body of GET /v1/models."""
    return _encode({"object": "list", "data": [model_object(model) for model in models]})


def model_body(model: ModelView) -> bytes:
    """The body of GET /v1/models/{id}."""
    return _encode(model_object(model))


def _to_usage(usage: _Usage | None, before: Usage | None = None) -> Usage | None:
    """`usage` in our words. What it leaves out stays as it was `before`: messages report input first, output last."""
    if usage is None:
        return before
    prompt = usage.prompt_tokens if usage.prompt_tokens is not None else usage.input_tokens
    completion = usage.completion_tokens if usage.completion_tokens is not None else usage.output_tokens
    if prompt is None and completion is None:
        return before
    details = usage.prompt_tokens_details or usage.input_tokens_details
    written = usage.completion_tokens_details or usage.output_tokens_details
    if before is None and details is None and written is None and usage.cache_read_input_tokens is None:
        return Usage(input_tokens=prompt or 0, output_tokens=completion or 0)
    cached = details.cached_tokens if details is not None else usage.cache_read_input_tokens
    known = before or Usage(input_tokens=0, output_tokens=0)
    reasoned = None if written is None else written.reasoning_tokens
    return Usage(
        input_tokens=known.input_tokens if prompt is None else prompt,
        output_tokens=known.output_tokens if completion is None else completion,
        cached_tokens=known.cached_tokens if cached is None else cached,
        reasoning_tokens=known.reasoning_tokens if reasoned is None else reasoned,
    )


def usage_of_answer(body: bytes) -> Usage | None:
    """The usage of an answer that is not streamed, `None` if it has none."""
    try:
        if len(body) <= MAX_PARSED_ANSWER_BYTES:
            usage = _decode_answer(body).usage
            if usage is None or usage.prompt_tokens is None:
                return _to_usage(usage)
            if usage.prompt_tokens_details is not None or usage.completion_tokens_details is not None:
                return _to_usage(usage)
            return Usage(input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens or 0)
        start = body.rindex(_USAGE) + len(_USAGE)
        opening = body.index(b"{", start)
        text = body[opening : opening + 4096].decode("utf-8", "replace")
        found, _ = json.JSONDecoder().raw_decode(text)
        return _to_usage(msgspec.convert(found, _Usage))
    except (*_UNDECODABLE, ValueError):
        return None


class Content(enum.Enum):
    """What one event of a stream brings a client."""

    NONE = enum.auto()
    """Nothing yet: the role, an empty delta, an opening event of the messages or responses dialect."""
    SOME = enum.auto()
    ERROR = enum.auto()
    COMMENT = enum.auto()
    """A keep-alive: the engine wants bytes to flow."""


_OPENING_TYPES = frozenset(
    {"message_start", "ping", "content_block_start", "response.created", "response.queued", "response.in_progress"}
)
_EMPTY = (b"null", b'""')
_TEXT, _QUOTE, _ERROR = b'"delta":{"content":"', b'"', b'"error"'


def content_of_event(event: bytes) -> Content:
    """What `event`, one whole event, brings. Used until the first content of a stream has been seen."""
    text = event.find(_TEXT)
    if text > 0 and not event.startswith(_QUOTE, text + len(_TEXT)) and _ERROR not in event:
        return Content.SOME  # as nearly all engines write it; a JSON string cannot hold these bytes
    data = sse.data_of(event)
    if not data:
        return Content.COMMENT
    try:
        decoded = _decode_event(data)
    except _UNDECODABLE:
        return Content.SOME  # [DONE], or something that the client shall judge
    if bytes(decoded.error) not in (b"", b"null"):
        return Content.ERROR
    if decoded.type is not None and decoded.choices is None:
        return Content.NONE if decoded.type in _OPENING_TYPES else Content.SOME
    if not decoded.choices:
        return Content.SOME
    return Content.NONE if all(_is_opening(choice) for choice in decoded.choices) else Content.SOME


def _is_opening(choice: _Choice) -> bool:
    if choice.finish_reason is not None or choice.delta is None:
        return False
    return all(name == "role" or bytes(value) in _EMPTY for name, value in choice.delta.items())


def error_of_event(event: bytes) -> tuple[int | None, bytes]:
    """The HTTP status an error event names, if any, and the error as the body of an answer."""
    data = sse.data_of(event)
    try:
        fields = _decode_fields(data)
        error = msgspec.json.decode(fields["error"])
    except (*_UNDECODABLE, KeyError):
        return None, data
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code <= 599 else None
    return status, data


def usage_of_events(events: bytes, before: Usage | None = None) -> Usage | None:
    """The usage after whole `events`, given what was known `before`; an event that cannot be read changes nothing."""
    usage = before
    for start, end in sse.spans_with(events, _USAGE):
        usage = _usage_of_event(sse.data_of(events[start:end]), usage)
    return usage


def _usage_of_event(data: bytes, before: Usage | None) -> Usage | None:
    try:
        decoded = _decode_event(data)
    except _UNDECODABLE:
        return before
    wrapped = decoded.response or decoded.message
    return _to_usage(decoded.usage or (wrapped.usage if wrapped is not None else None), before)


def without_usage(events: bytes) -> bytes:
    """The same events, without the usage that only the gateway asked for.

    The extra event at the end, whose `choices` are empty, goes as a whole. Some engines put usage on an event with
    choices: that one stays and loses the field.
    """
    kept: list[bytes] = []
    done = 0
    for start, end in sse.spans_with(events, _USAGE):
        try:
            fields = _decode_fields(sse.data_of(events[start:end]))
        except _UNDECODABLE:
            continue
        if "usage" in fields:
            kept.append(events[done:start])
            done = end
            if bytes(fields.get("choices", b"")) != b"[]":
                del fields["usage"]
                kept.append(sse.event(_encode(fields)))
    kept.append(events[done:])
    return b"".join(kept)
