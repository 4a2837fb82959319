"""What the dialects have in common: a request for text, and what writes the answer."""

from array import array
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from pilothouse.model.requests import Usage
from pilothouse.testing.fake_engine.errors import bad_request
from pilothouse.testing.fake_engine.scripts import UsageReport

_Body = TypeVar("_Body")
_MAX_CHOICES = 128


class TextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for text, in whatever dialect: token ids in, at most `max_tokens` out, `n` answers for each prompt."""

    model: str | None
    prompts: "list[array[int]]"
    max_tokens: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    seed: int = 0
    salt: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One finished choice. `stop` is the stop string that ended it."""

    text: str
    finish_reason: str
    stop: str | None = None


class Writer(Protocol):
    """Writes one response in a dialect, as events of a stream or whole. Events end with an empty line."""

    def opening(self, usage: Usage) -> list[bytes]:
        """Events before the first token. Of the usage only the input is known."""

    def token(self, index: int, text: str, answer: Answer | None) -> list[bytes]:
        """Events for one token of choice `index`; `answer` comes with its last one."""

    def closing(self, usage: Usage, answers: Sequence[Answer], report: UsageReport) -> list[bytes]:
        """Events after the last token."""

    def done(self) -> list[bytes]:
        """The event that says that the stream is complete, where the dialect has one."""

    def error(self, body: dict[str, Any]) -> list[bytes]:
        """An error event."""

    def whole(self, usage: Usage, answers: Sequence[Answer], report: UsageReport) -> dict[str, Any]:
        """The response without streaming."""


def decode(data: bytes, kind: type[_Body]) -> _Body:
    """The body of a request. Raises RequestRefusedError (400) with a message in vLLM's manner."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"1 validation error: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"JSON decode error: {error}") from None


def stop_strings(value: str | list[str] | None) -> tuple[str, ...]:
    """The `stop` parameter as a tuple, without empty strings."""
    if value is None:
        return ()
    return tuple(filter(None, [value] if isinstance(value, str) else value))


def choices(n: int | None) -> int:
    """The `n` parameter, checked."""
    if n is None:
        return 1
    if not 1 <= n <= _MAX_CHOICES:
        raise bad_request(f"n must be between 1 and {_MAX_CHOICES}, got {n}.", "n")
    return n


def limit(value: int | None, param: str) -> int | None:
    """A limit on the output, checked."""
    if value is not None and value < 1:
        raise bad_request(f"{param} must be at least 1, got {value}.", param)
    return value


def with_usage(value: dict[str, Any], usage: dict[str, Any], report: UsageReport) -> dict[str, Any]:
    """`value` with its usage as the script wants it reported."""
    if report == "omit":
        return value
    return {**value, "usage": None if report == "null" else usage}


def event(data: bytes, name: str | None = None) -> bytes:
    """One server-sent event."""
    return b"data: %b\n\n" % data if name is None else b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def json_string(text: str) -> bytes:
    """A text as a JSON string, quotes included."""
    return msgspec.json.encode(text)
