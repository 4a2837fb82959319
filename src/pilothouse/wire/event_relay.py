"""Between an engine's event stream and a client's: what is held back, what is taken out, what is learned on the way.

The opening of a stream, until its first content, is held back, so that a failure in it can still be a real HTTP status.
After that whole events go on as they came; only one with a usage in it is looked at.
"""

from pilothouse.model.requests import Usage
from pilothouse.wire import openai
from pilothouse.wire.openai import Content
from pilothouse.wire.sse import EventCutter, end_of_event

MAX_HELD_BYTES = 64 * 1024
"""Up to 64 KiB of opening events are held back; more is not an opening."""

_USAGE = b'"usage"'
_PROGRESS = b'"prompt_progress"'


class EventRelay:
    """Byte pump: an engine's bytes as they arrive in, events for the client out.

    `begun`: something has been given out, so it is too late for a status. `content_seen`: among it was content, and not
    only keep-alives. `failure`: the event with which the engine failed before that; nothing was given out, and nothing
    will be. `usage`: what the engine has reported so far.
    """

    __slots__ = ("_cutter", "_held", "_hides_progress", "_hides_usage", "begun", "content_seen", "failure", "usage")

    def __init__(self, *, hides_usage: bool = False, hides_progress: bool = False) -> None:
        self._cutter = EventCutter()
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
            return events  # the usual read of a stream: whole events, as they came
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
            if self._hides_usage:
                events = openai.without_usage(events)
        return events if self.begun else self._hold(events)

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
        held.append(events[start:])
        if not self.begun and sum(map(len, held)) > MAX_HELD_BYTES:
            self.begun = True
        if not self.begun:
            return b""
        self._held = []
        return b"".join(held)
