"""Read a log from its end, and go on reading while it grows, is cut short, or is put aside for a new one."""

import os
from pathlib import Path
from typing import BinaryIO, Self

_BLOCK_BYTES = 64 * 1024
_MAX_LINE_BYTES = 1024 * 1024


class LogReader:
    """Whole lines of one log file, each once. To be used in a `with`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO = path.open("rb")
        self._rest = b""

    def last(self, lines: int) -> list[str]:
        """The last `lines` lines; `read` goes on behind them."""
        if lines <= 0:
            self._file.seek(0, os.SEEK_END)
            return []
        position = self._file.seek(0, os.SEEK_END)
        data = b""
        while position > 0 and data.count(b"\n") <= lines:
            step = min(_BLOCK_BYTES, position)
            position = self._file.seek(position - step)
            data = self._file.read(step) + data
        self._file.seek(position + len(data))
        return self._whole_lines(data)[-lines:]

    def read(self) -> list[str]:
        """The lines that were completed since the last call."""
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)  # it was cut short: what is there now is new
            self._rest = b""
        found = self._whole_lines(self._file.read())
        if self._was_replaced():
            # What was read just now was the end of the old one, since it was put aside before.
            found += self._whole_lines(self._file.read())
            found += [self.unfinished()] if self._rest else []
            self._file.close()
            self._file, self._rest = self._path.open("rb"), b""
            found += self._whole_lines(self._file.read())
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def unfinished(self) -> str:
        """The last line as far as it has been written."""
        return self._rest.decode("utf-8", "replace")

    def _was_replaced(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False  # put aside, and the new one is not there yet
        return not os.path.samestat(there, os.fstat(self._file.fileno()))

    def _whole_lines(self, data: bytes) -> list[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            whole.append(self._rest)
            self._rest = b""
        return [line.decode("utf-8", "replace") for line in whole]
