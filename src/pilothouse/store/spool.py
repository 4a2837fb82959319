"""Rows on their way to the ledger: files of this host that outlive a killed worker.

A worker appends a row before the last event of its turn leaves: the write is in the kernel then, and survives the
process. `sync`, called every 100 ms, makes it survive the machine. The controller reads the files of all workers,
inserts what it finds, and removes a file once its writer is gone and all of it is in the ledger. Since inserting is
idempotent, reading again after any crash is harmless.

A record is its length and the CRC-32 of its content (two little-endian 32-bit numbers), then the row as MessagePack. A
writer never goes on in a file of another life, so a torn record can only be the last of its file.
"""

import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pilothouse.model.ledger import LedgerRow
from pilothouse.store.private_files import unreadable_state

SYNC_INTERVAL_S = 0.1
"""How long a row may be in the kernel alone."""

MAX_SEGMENT_BYTES = 16 * 1024 * 1024
"""About 80,000 rows; then the worker begins another file."""

_HEADER = struct.Struct("<II")
_MAX_RECORD_BYTES = 64 * 1024  # a row has a few hundred; a longer length is damage
_SUFFIX = ".spool"
_DAMAGED = ".damaged"


class SpoolWriter:
    """One worker's end. `worker` names one life of one process.

    Raises:
        PilothouseError: state_unreadable, here and from `append` and `sync`: for example when the disk is full.
    """

    def __init__(self, directory: Path, worker: str, *, max_segment_bytes: int = MAX_SEGMENT_BYTES) -> None:
        self._directory = directory
        self._worker = worker
        self._max_segment_bytes = max_segment_bytes
        self._encoder = msgspec.msgpack.Encoder()
        self._segment = 0
        self._file = -1
        self._size = 0
        self._dirty = False
        with unreadable_state(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._begin_segment()

    def append(self, row: LedgerRow) -> None:
        """Write a row. When this returns, the row survives the end of this process."""
        content = self._encoder.encode(row)
        record = _HEADER.pack(len(content), zlib.crc32(content)) + content
        if self._size + len(record) > self._max_segment_bytes and self._size:
            self.sync()
            os.close(self._file)
            self._begin_segment()
        with unreadable_state(self._directory):
            written = os.write(self._file, record)
            if written != len(record):
                # The disk is full. What is torn is cut off, so that later records are found again.
                os.ftruncate(self._file, self._size)
                raise OSError(28, "No space left on device")
        self._size += len(record)
        self._dirty = True

    def sync(self) -> None:
        """Make what was appended survive the machine. Blocks for as long as the disk takes."""
        if self._dirty:
            self._dirty = False
            with unreadable_state(self._directory):
                os.fdatasync(self._file)

    def begin_sync(self) -> Callable[[], None] | None:
        """What to call, in a thread, to sync what has been appended; `None` if there is nothing."""
        if not self._dirty:
            return None
        self._dirty = False
        descriptor = os.dup(self._file)  # the file may be another by then

        def sync() -> None:
            with unreadable_state(self._directory):
                try:
                    os.fdatasync(descriptor)
                finally:
                    os.close(descriptor)

        return sync

    def close(self) -> None:
        """The worker ends."""
        self.sync()
        os.close(self._file)

    def _begin_segment(self) -> None:
        self._segment += 1
        path = self._directory / f"{self._worker}-{self._segment:06}{_SUFFIX}"
        with unreadable_state(path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o600)
            # Held until the process ends, however it does: whoever gets it knows that nobody writes here any more.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._size = 0


class Segment:
    """One file, as its reader has it. `read` gives what is new; `ended` says that there will be no more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self._decoder = msgspec.msgpack.Decoder(LedgerRow)
        self.is_damaged = False

    def read(self, limit: int) -> list[LedgerRow]:
        """At most `limit` rows that follow those already read. A record that is not whole yet is left for later."""
        rows: list[LedgerRow] = []
        with self.path.open("rb") as file:
            file.seek(self.offset)
            while len(rows) < limit:
                header = file.read(_HEADER.size)
                if len(header) < _HEADER.size:
                    break
                length, checksum = _HEADER.unpack(header)
                content = file.read(length) if length <= _MAX_RECORD_BYTES else b""
                if len(content) < length and length <= _MAX_RECORD_BYTES:
                    break
                try:
                    if length > _MAX_RECORD_BYTES or zlib.crc32(content) != checksum:
                        raise msgspec.DecodeError("the checksum does not fit")
                    rows.append(self._decoder.decode(content))
                except msgspec.MsgspecError:
                    self.is_damaged = True
                    break
                self.offset += _HEADER.size + length
        return rows

    def is_abandoned(self) -> bool:
        """Whether its writer has closed it, or is gone."""
        with self.path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def remove(self) -> None:
        """All of it is in the ledger. One that is damaged is kept beside, for a person to look at."""
        with contextlib.suppress(FileNotFoundError):
            if self.is_damaged:
                self.path.rename(self.path.with_suffix(_DAMAGED))
            else:
                self.path.unlink()


class SpoolReader:
    """The files of all workers of this host."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segments: dict[Path, Segment] = {}

    def segments(self) -> Iterator[Segment]:
        """The files there are now, a worker's oldest first."""
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            yield self._segments.setdefault(path, Segment(path))

    def forget(self, segment: Segment) -> None:
        """It has been removed."""
        self._segments.pop(segment.path, None)
