"""Server-sent events: cut a byte stream at event boundaries without looking at what is between them.

Events end at an empty line; lines end with LF, CRLF or CR (WHATWG HTML, 9.2.5). Whole events go on as they came.
"""

from collections.abc import Iterator

MAX_EVENT_BYTES = 1024 * 1024
"""1 MiB: far above an event with many log-probabilities. A longer one is passed on in pieces, unexamined."""


class EventCutter:
    """Byte pump: bytes as they arrive in, whole events out, the unfinished rest kept.

    `oversize` is true while an event longer than the bound is being passed on in pieces.
    """

    __slots__ = ("_rest", "oversize")

    def __init__(self) -> None:
        self._rest = b""
        self.oversize = False

    def feed(self, data: bytes) -> bytes:
        """The whole events that `data` completes, in one piece; empty if it completes none."""
        if not self._rest and not self.oversize and data.endswith(b"\n\n"):
            return data  # nearly always: the engine writes whole events
        if self._rest:
            data = self._rest + data
        end = _last_boundary(data)
        if end == 0:
            if len(data) > MAX_EVENT_BYTES or self.oversize:
                self.oversize = True
                # A boundary may lie across this read and the next: its first bytes are kept.
                keep = len(data) - len(data.rstrip(b"\r\n"))
                end = len(data) - keep
            self._rest = data[end:]
            return data[:end]
        self.oversize = False
        self._rest = data[end:]
        return data[:end]

    def close(self) -> bytes:
        """The unfinished rest: an event that lost its end, or the last one of a server that omits the empty line."""
        rest, self._rest = self._rest, b""
        return rest


def _last_boundary(data: bytes) -> int:
    """The offset behind the last event boundary in `data`, 0 if there is none."""
    if b"\r" not in data:
        return data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
    end = 0
    for boundary in (b"\n\n", b"\r\r", b"\n\r\n", b"\r\n\r"):
        found = data.rfind(boundary)
        if found >= 0:
            end = max(end, found + len(boundary))
    return end


def split(events: bytes) -> list[bytes]:
    """Whole events, as `EventCutter.feed` gave them, one by one, each with its boundary."""
    if b"\r" not in events:
        parts = events.split(b"\n\n")
        last = parts.pop()
        pieces = [part + b"\n\n" for part in parts]
        return [*pieces, last] if last else pieces
    pieces = []
    start = 0
    while start < len(events):
        end = end_of_event(events, start)
        pieces.append(events[start:end])
        start = end
    return pieces


def end_of_event(events: bytes, start: int) -> int:
    """The offset behind the event that begins at `start`, with its boundary; the end of `events` if it has none."""
    usual = events.find(b"\n\n", start)
    best = usual + 2 if usual >= 0 else len(events)
    if events.find(b"\r", start, best) < 0:
        return best
    for boundary in (b"\r\r", b"\n\r\n", b"\r\n\r\n"):
        found = events.find(boundary, start, best)
        if found >= 0:
            best = found + len(boundary)
    return best


def spans_with(events: bytes, marker: bytes) -> Iterator[tuple[int, int]]:
    """Where the events that hold `marker` begin and end, without cutting the others apart."""
    found = events.find(marker)
    if found < 0:
        return
    usual = b"\r" not in events
    start = end = 0
    while found >= 0:
        if usual:
            before = events.rfind(b"\n\n", end, found)
            start = before + 2 if before >= 0 else end
            end = end_of_event(events, found)
        else:
            while end <= found:
                start, end = end, end_of_event(events, end)
        yield start, end
        found = events.find(marker, end)


def data_of(event: bytes) -> bytes:
    """The data field of one event, lines joined by LF; empty if it has none (a comment, say)."""
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    values = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    return values[0] if len(values) == 1 else b"\n".join(values)


def event(data: bytes, name: bytes | None = None) -> bytes:
    """One event. `data` has no line breaks."""
    head = b"event: %b\n" % name if name else b""
    return b"%bdata: %b\n\n" % (head, data)
