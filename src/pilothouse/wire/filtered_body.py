"""A request, or an answer that is not streamed, through the filter."""

import json
from typing import Any

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.policy.redaction.compiled import CompiledFilter
from pilothouse.policy.redaction.turn import Turn
from pilothouse.wire.filter_events import search_strings
from pilothouse.wire.filtered_stream import blocked_refusal

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class _RepeatedKeyError(ValueError):
    """An object has a key twice: the engine may read the value that was not searched."""


def filter_request(data: bytes, compiled: CompiledFilter, turn: Turn) -> bytes | Refusal:
    """The body to send to an engine: the same bytes where nothing was replaced; or why it must not be sent."""
    try:
        value = json.loads(data, object_pairs_hook=_unique)
    except _RepeatedKeyError:
        return Refusal(code="duplicate_key", message="A key of the body is repeated; send each key once.")
    except (ValueError, RecursionError):
        return Refusal(code="invalid_json", message="The body could not be parsed as JSON.")
    return _filtered(data, value, compiled, turn)


def filter_answer(data: bytes, compiled: CompiledFilter, turn: Turn, *, as_text: bool = False) -> bytes | Refusal:
    """The body to send to a client: the same bytes where nothing was replaced; or why it must not be sent.

    What is not JSON is searched as a text if it may be one (`as_text`, for an engine's refusals), else it is a failure.
    """
    if not data:
        return data
    try:
        value = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        try:
            value = json.loads(data)  # lets in the halves of surrogate pairs
        except (ValueError, RecursionError):
            if as_text:
                return _filtered_text(data, compiled, turn)
            if compiled.fail_open:
                return data
            return Refusal(code="filter_failed", message="The content filter cannot read the answer: it is not JSON.")
    return _filtered(data, value, compiled, turn)


def _filtered(data: bytes, value: object, compiled: CompiledFilter, turn: Turn) -> bytes | Refusal:
    blocked: list[str] = []

    def search(text: str, json_source: bool) -> str:
        found, entity = compiled.whole(text, turn, json_source=json_source)
        if entity is not None:
            blocked.append(entity)
        return found

    try:
        searched = search_strings(value, search)
    except Exception as error:
        return data if compiled.fail_open else failed_refusal(error)
    if blocked:
        return blocked_refusal(blocked[0])
    return data if searched is value else _source(searched)


def _filtered_text(data: bytes, compiled: CompiledFilter, turn: Turn) -> bytes | Refusal:
    text = data.decode("utf-8", "replace")
    try:
        found, entity = compiled.whole(text, turn)
    except Exception as error:
        return data if compiled.fail_open else failed_refusal(error)
    if entity is not None:
        return blocked_refusal(entity)
    return data if found == text else found.encode()


def failed_refusal(error: Exception) -> Refusal:
    """What is told when a detector raised. Never what it raised: that may have the value in it."""
    return Refusal(code="filter_failed", message=f"The content filter failed: {type(error).__name__}.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RepeatedKeyError
    return found


def _source(value: object) -> bytes:
    try:
        return _encode(value)
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        return json.dumps(value, separators=(",", ":")).encode()
