"""One line for every request without slowing any: finished lines are taken down and written in batches.

Whoever owns the log calls `flush()` on a timer. A reader that stops reading (a stuck pipe) never stops the event
loop: what does not fit is dropped, counted, and the count is told when there is room again.
"""

import os
import select
import stat
from collections import deque

import msgspec

from pilothouse.telemetry.redaction import redact

MAX_PENDING_BYTES = 1024 * 1024  # some 4,000 lines of 250 bytes: a second of a busy worker

# POSIX: a pipe that polls as writable takes this much at once without blocking, and without mixing it with others'.
_PIPE_CHUNK = select.PIPE_BUF
_FILE_CHUNK = MAX_PENDING_BYTES


class EventsDropped(msgspec.Struct, frozen=True, kw_only=True, tag="events_dropped", tag_field="event"):
    """How many events were lost since the last line of this kind."""

    count: int


class EventLog:
    """Writes JSON lines to a file descriptor, which stays the caller's."""

    __slots__ = ("_fd", "_lines", "_max_write", "_pending_bytes", "_poll", "_regular", "_untold", "dropped")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._regular = stat.S_ISREG(os.fstat(fd).st_mode)
        self._max_write = _FILE_CHUNK if self._regular else _PIPE_CHUNK
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._lines: deque[bytes] = deque()
        self._pending_bytes = 0
        self._untold = 0
        self.dropped = 0
        """Events lost so far."""

    def write(self, lines: list[bytes]) -> None:
        """Take lines down, without their ends. They are lost, and counted, if too much waits to be written already."""
        if not lines:
            return
        if self._pending_bytes > MAX_PENDING_BYTES:
            self._lose(len(lines))
        elif self._regular and not self._lines:
            # A file always takes what it is given: the usual case needs no queue.
            if not self._write_whole(redact(b"\n".join((*lines, b"")))):
                self._lose(len(lines))
        else:
            self._lines.extend(lines)
            self._pending_bytes += sum(map(len, lines)) + len(lines)

    def flush(self) -> None:
        """Write what waits, as far as that goes without blocking. Never raises for what the descriptor says."""
        while self._lines and self._writable():
            batch = self._next_batch()
            if batch and not self._write_whole(batch):
                self._lose(batch.count(b"\n"))
                return
        if self._untold and not self._lines and self._writable():
            told = EventsDropped(count=self._untold)
            if self._write_whole(msgspec.json.encode(told) + b"\n"):
                self._untold = 0

    def _writable(self) -> bool:
        events = self._poll.poll(0)
        return bool(events) and bool(events[0][1] & (select.POLLOUT | select.POLLERR))

    def _next_batch(self) -> bytes:
        """Whole lines up to what may be written at once. A longer line than that is lost."""
        batch: list[bytes] = []
        size = 0
        while self._lines and size + len(self._lines[0]) < self._max_write:
            line = self._lines.popleft()
            batch.append(line)
            size += len(line) + 1
        if not batch:
            size = len(self._lines.popleft()) + 1
            self._lose(1)
        self._pending_bytes -= size
        batch.append(b"")
        return redact(b"\n".join(batch))

    def _write_whole(self, data: bytes) -> bool:
        """False when the descriptor takes no more."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except OSError:
                return False
        return True

    def _lose(self, count: int) -> None:
        self.dropped += count
        self._untold += count
