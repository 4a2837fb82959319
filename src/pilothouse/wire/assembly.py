"""An answer that is not streamed, put together from the stream that an engine was asked for in its place."""

from typing import Any

import msgspec

from pilothouse.model.requests import Route
from pilothouse.wire import sse

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

_OBJECTS = {Route.CHAT_COMPLETIONS: "chat.completion", Route.COMPLETIONS: "text_completion"}
_WHOLE = frozenset({"role", "id", "type", "name", "index", "finish_reason"})
"""Fields that a delta brings at once, and not piece by piece."""


class Assembly:
    """Byte pump: the stream of one chat or text completion in, the answer out at its end.

    `failure` is an error event that came among the chunks. `pieces` counts those with a piece of the answer.
    """

    def __init__(self, route: Route) -> None:
        self._cutter = sse.EventCutter()
        self._object = _OBJECTS[route]
        self._answer: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self.failure: bytes | None = None
        self.pieces = 0

    def feed(self, data: bytes, *, last: bool) -> None:
        """Take a piece of the stream. Raises ValueError if an event in it is not a chunk of a completion."""
        events = self._cutter.feed(data)
        if last:
            events += self._cutter.close()
        for event in sse.split(events):
            text = sse.data_of(event)
            if text and text != b"[DONE]" and self.failure is None:
                try:
                    self._take(event, _decode(text))
                except (msgspec.MsgspecError, AttributeError, TypeError, RecursionError) as error:
                    raise ValueError(f"an event is not a chunk of a completion ({error})") from error

    def _take(self, event: bytes, chunk: dict[str, Any]) -> None:
        if chunk.get("error") is not None:
            self.failure = event
            return
        chunk.pop("prompt_progress", None)
        for choice in chunk.pop("choices", None) or ():
            self.pieces += _brings_text(choice)
            _merge(self._choices.setdefault(choice.get("index", 0), {}), choice)
        self._answer.update(chunk)

    def answer(self) -> bytes:
        """The answer as the engine would have given it."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        for choice in choices:
            if "delta" in choice:
                choice["message"] = _message(choice.pop("delta"))
        return _encode({**self._answer, "object": self._object, "choices": choices})


def _brings_text(choice: dict[str, Any]) -> bool:
    if choice.get("text"):
        return True
    return any(name != "role" and value for name, value in (choice.get("delta") or {}).items())


def _message(delta: dict[str, Any]) -> dict[str, Any]:
    """The message of a choice. Its content is null where there was none; tool calls lose the index of their deltas."""
    for call in delta.get("tool_calls") or ():
        call.pop("index", None)
    return {"role": "assistant", "content": None, **delta}


def _merge(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a piece to what there is: text is appended, lists are joined, calls go by their index, null adds nothing."""
    for name, value in piece.items():
        known = whole.get(name)
        if known is None or name in _WHOLE:
            if value is not None or name not in whole:
                whole[name] = value
        elif isinstance(value, str) and isinstance(known, str):
            whole[name] = known + value
        elif isinstance(value, dict) and isinstance(known, dict):
            _merge(known, value)
        elif isinstance(value, list) and isinstance(known, list):
            if name == "tool_calls":
                _merge_calls(known, value)
            else:
                known.extend(value)
        elif value is not None:
            whole[name] = value


def _merge_calls(known: list[dict[str, Any]], pieces: list[dict[str, Any]]) -> None:
    for piece in pieces:
        same = next((call for call in known if call.get("index") == piece.get("index")), None)
        if same is None:
            known.append(piece)
        else:
            _merge(same, piece)
