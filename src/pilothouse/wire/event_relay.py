"""Between an engine's event stream and a client's: what is held back, what is taken out, what is learned on the way.

The opening of a stream, until its first content, is held back, so that a failure in it can still be a real HTTP status.
After that whole events go on as they came; only one with a usage in it is looked at.
"""

from pilothouse.model.requests import Route, Usage
from pilothouse.wire import openai
from pilothouse.wire.openai import Content
from pilothouse.wire.sse import EventCutter, end_of_event

MAX_HELD_BYTES = 64 * 1024
"""Up to 64 KiB of opening events are held back; more is not an opening."""

_PIECES = {
    Route.CHAT_COMPLETIONS: b'"delta":{"',
    Route.COMPLETIONS: b'"text":"',
    Route.RESPONSES: b'.delta"',
    Route.MESSAGES: b'"content_block_delta"',
}
"""What stands once in each event that brings a piece of an answer, and in no other; a JSON string cannot hold it."""

_DONE = (b"[DONE]\n\n", b"[DONE]\r\n\r\n")
_ENDS = {
    Route.CHAT_COMPLETIONS: _DONE,
    Route.COMPLETIONS: _DONE,
    Route.MESSAGES: (b'"message_stop"}\n\n', b'"message_stop" }\n\n', b'"message_stop"}\r\n\r\n'),
}
"""With what the last event of a stream ends; in the dialect of responses it is the one with the usage."""

_USAGE = b'"usage"'
_NOWHERE = b"\n\n\n"
_PROGRESS = b'"prompt_progress"'


class EventRelay:
    """Byte pump: an engine's bytes as they arrive in, events for the client out.

    `begun`: something has been given out, so it is too late for a status. `content_seen`: among it was content, and not
    only keep-alives. `failure`: the event with which the engine failed before that; nothing was given out, and nothing
    will be. `usage`: what the engine has reported so far. `pieces`: events with a piece of the answer that were given
    out, for engines that report none. `ended`: the last event of the dialect was given out.
    """

    __slots__ = (
        "_cutter",
        "_ends",
        "_held",
        "_hides_progress",
        "_hides_usage",
        "_piece",
        "begun",
        "content_seen",
        "ended",
        "failure",
        "pieces",
        "usage",
    )

    def __init__(self, route: Route, *, hides_usage: bool = False, hides_progress: bool = False) -> None:
        self._cutter = EventCutter()
        self._piece = _PIECES.get(route, _NOWHERE)
        self._ends = _ENDS.get(route, ())
        self.pieces = 0
        self.ended = False
        self._held: list[bytes] = []
        self._hides_usage = hides_usage
        self._hides_progress = hides_progress
        self.begun = False
        self.content_seen = False
        self.failure: bytes | None = None
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> bytes:
        """The events that may go to the client now."""
        events = self._cutter.feed(data)
        if self.begun and _USAGE not in events:
            # The usual read of a stream: whole events, as they came.
            self.pieces += events.count(self._piece)
            if events.endswith(self._ends):
                self.ended = True
            return events
        return self._examine(events) if events else b""

    def close(self) -> bytes:
        """The engine's stream is at its end: what was held back may go, and a last event that lacks its own end."""
        rest = self._examine(self._cutter.close())
        if self.failure is not None or self.begun:
            return rest
        self.begun = True
        return b"".join(self._held)

    def _examine(self, events: bytes) -> bytes:
        if _USAGE in events:
            self.usage = openai.usage_of_events(events, self.usage)
            self.ended = not self._ends and self.usage is not None
            if self._hides_usage:
                events = openai.without_usage(events)
        if events.endswith(self._ends):
            self.ended = True
        if not self.begun:
            return self._hold(events)
        self.pieces += events.count(self._piece)
        return events

    def _hold(self, events: bytes) -> bytes:
        """Hold `events` back until there is content among them, and nothing after an error."""
        held = self._held
        start = 0 if self.failure is None else len(events)
        while start < len(events) and not self.begun:
            end = end_of_event(events, start)
            event = events[start:end]
            start = end
            if self._hides_progress and _PROGRESS in event:
                continue
            content = openai.content_of_event(event)
            if content is Content.ERROR:
                self.failure = event
                return b""
            self.begun = content is not Content.NONE
            self.content_seen = content is Content.SOME
            held.append(event)
            if self.content_seen:
                self.pieces += event.count(self._piece)
        held.append(events[start:])
        self.pieces += held[-1].count(self._piece)
        if not self.begun and sum(map(len, held)) > MAX_HELD_BYTES:
            self.begun = True
        if not self.begun:
            return b""
        self._held = []
        return b"".join(held)
