"""Writes a response in pieces, slowly, or only a part of it."""

import asyncio
from collections.abc import Callable

from pilothouse.testing.fake_engine.scripts import Script


class ByteShaper:
    """Stands between a response and its connection and does what a script says with the bytes.

    `cut` is called when the script's limit of bytes is reached, `finished` when all is written after `end()`.
    """

    def __init__(
        self,
        script: Script,
        *,
        write: Callable[[bytes], None],
        cut: Callable[[], None],
        finished: Callable[[], None],
    ) -> None:
        self._sizes = script.split
        self._interval_s = script.write_interval_s
        self._limit = script.close_after_bytes
        self._write = write
        self._cut = cut
        self._finished = finished
        self._buffer = bytearray()
        self._written = 0
        self._pieces = 0
        self._ended = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None

    def write(self, data: bytes) -> None:
        """Bytes of the response, to be written now or later."""
        self._buffer += data
        if self._timer is None:
            self._flush()

    def end(self) -> None:
        """There is no more."""
        self._ended = True
        if self._timer is None and not self._stopped:
            self._flush()

    def stop(self) -> None:
        """Write nothing any more."""
        self._stopped = True
        self._buffer.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _flush(self) -> None:
        self._timer = None
        while self._buffer and not self._stopped:
            piece = self._next_piece()
            self._write(piece)
            self._written += len(piece)
            if self._limit is not None and self._written >= self._limit:
                self.stop()
                self._cut()
                return
            if self._sizes and self._interval_s > 0:
                self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._flush)
                return
        if self._ended and not self._stopped:
            self._stopped = True
            self._finished()

    def _next_piece(self) -> bytes:
        size = len(self._buffer)
        if self._sizes:
            size = min(size, self._sizes[self._pieces % len(self._sizes)])
            self._pieces += 1
        if self._limit is not None:
            size = min(size, self._limit - self._written)
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        return piece
