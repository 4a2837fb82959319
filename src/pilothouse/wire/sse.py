"""Server-sent events: cut a byte stream at event boundaries without looking at what is between them.

Events end at an empty line; lines end with LF, CRLF or CR (WHATWG HTML, 9.2.5). Whole events go on as they came.
"""

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
    while events:
        end = _first_boundary(events)
        pieces.append(events[:end])
        events = events[end:]
    return pieces


def _first_boundary(data: bytes) -> int:
    """The offset behind the first event boundary in `data`, its length if there is none."""
    best = len(data)
    for boundary in (b"\n\n", b"\r\r", b"\n\r\n", b"\r\n\r\n"):
        found = data.find(boundary)
        if found >= 0:
            best = min(best, found + len(boundary))
    return best


def data_of(event: bytes) -> bytes:
    """The data field of one event, lines joined by LF; empty if it has none (a comment, say)."""
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    values = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    return values[0] if len(values) == 1 else b"\n".join(values)


def event(data: bytes, name: bytes | None = None) -> bytes:
    """One event. `data` has no line breaks."""
    head = b"event: %b\n" % name if name else b""
    return b"%bdata: %b\n\n" % (head, data)
