"""A request, or an answer that is not streamed, through the filter."""

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.policy.redaction.compiled import CompiledFilter
from pilothouse.policy.redaction.turn import Turn
from pilothouse.wire.filter_events import search_strings
from pilothouse.wire.filtered_stream import blocked_refusal

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def filter_body(data: bytes, compiled: CompiledFilter, turn: Turn) -> bytes | Refusal:
    """The body to send on: the same bytes where nothing was replaced; or why it must not be sent.

    A body that is not JSON is passed on as it is: it is the other side's to refuse.
    """
    if compiled.idle:
        return data
    blocked: list[str] = []

    def search(text: str, json_source: bool) -> str:
        found, entity = compiled.whole(text, turn, json_source=json_source)
        if entity is not None:
            blocked.append(entity)
        return found

    try:
        value = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        return data
    try:
        searched = search_strings(value, search)
    except Exception as error:
        if compiled.fail_open:
            return data
        return Refusal(code="filter_failed", message=f"The filter failed: {type(error).__name__}.")
    if blocked:
        return blocked_refusal(blocked[0])
    return data if searched is value else _encode(searched)
