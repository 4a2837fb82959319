"""Rows on their way to the ledger: files of this host that outlive a killed worker.

A worker appends a row before the last event of its turn leaves: the write is in the kernel then, and survives the
process. `sync`, called every 100 ms, makes it survive the machine. The controller reads the files of all workers,
inserts what it finds, and removes a file once its writer is gone and all of it is in the ledger. Since inserting is
idempotent, reading again after any crash is harmless.

A record is its length and the CRC-32 of its content (two little-endian 32-bit numbers), then the row as MessagePack, in
two parts: names that many turns have in common, and the turn's own values. Zeros are where nothing has been written. A
writer never goes on in a file of another life, so a torn record can only be the last of its file.
"""

import contextlib
import fcntl
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from pilothouse.model.ids import DeploymentName, KeyId, ModelName, OrganisationId, RequestId, TenantId
from pilothouse.model.ledger import CountedBy, LedgerRow, Outcome
from pilothouse.model.units import WallNs
from pilothouse.store.private_files import unreadable_state

SYNC_INTERVAL_S = 0.1
"""How long a row may be in the kernel alone."""

MAX_SEGMENT_BYTES = 4 * 1024 * 1024
"""About 20,000 rows; then the worker begins another file."""

_PAIR = b"\x92"  # MessagePack: an array of two
_HEADER = struct.Struct("<II")
_MAX_RECORD_BYTES = 64 * 1024  # a row has a few hundred; a longer length is damage
_SUFFIX = ".spool"
_DAMAGED = ".damaged"


class RowNames(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What the rows of a key's turns on a deployment have in common."""

    organisation: OrganisationId
    tenant: TenantId
    key: KeyId
    model: ModelName
    deployment: DeploymentName
    arm: str = ""


class RowNumbers(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The rest of a row."""

    id: RequestId
    started_at: WallNs
    ended_at: WallNs
    outcome: Outcome
    first_content_at: WallNs | None
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    nano_cost: int
    counted_by: CountedBy


_encode = msgspec.msgpack.Encoder().encode


def encode_names(names: RowNames) -> bytes:
    """For `SpoolWriter.write`."""
    return _encode(names)


class SpoolWriter:
    """One worker's end. `worker` names one life of one process.

    A file has its whole size from the start and is mapped into memory: a row costs a copy, and no call of the system.
    What is not used of it is zeros, and cut off in the end.

    Raises:
        PilothouseError: state_unreadable, here and from `append`, `write` and `sync`; when the disk is full, say.
    """

    def __init__(self, directory: Path, worker: str, *, max_segment_bytes: int = MAX_SEGMENT_BYTES) -> None:
        self._directory = directory
        self._worker = worker
        self._max_segment_bytes = max_segment_bytes
        self._segment = 0
        self._file = -1
        self._map: mmap.mmap | None = None
        self._size = 0
        self._dirty = False
        self._ended: list[int] = []  # files that are full, and not synced yet
        with unreadable_state(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._begin_segment()

    def append(self, row: LedgerRow) -> None:
        """Write a row. When this returns, the row survives the end of this process."""
        values = msgspec.structs.asdict(row)
        names = RowNames(**{name: values[name] for name in RowNames.__struct_fields__})
        self.write(encode_names(names), tuple(values[name] for name in RowNumbers.__struct_fields__))

    def write(self, names: bytes, numbers: Sequence[object]) -> None:
        """As `append`: what turns have in common, encoded once, and the values of `RowNumbers` in their order."""
        content = _PAIR + names + _encode(numbers)
        length = len(content)
        start = self._size + _HEADER.size
        if start + length > self._max_segment_bytes or self._map is None:
            self._end_segment()
            self._begin_segment()
            start = _HEADER.size
        assert self._map is not None
        # Its reader looks at the length first: when that is there, so is the rest.
        self._map[start : start + length] = content
        self._map[start - _HEADER.size : start] = _HEADER.pack(length, zlib.crc32(content))
        self._size = start + length
        self._dirty = True

    def sync(self) -> None:
        """Make what was appended survive the machine. Blocks for as long as the disk takes."""
        sync = self.begin_sync()
        if sync is not None:
            sync()

    def begin_sync(self) -> Callable[[], None] | None:
        """What to call, in a thread, to sync what has been appended; `None` if there is nothing."""
        descriptors, self._ended = self._ended, []
        if self._dirty:
            self._dirty = False
            descriptors.append(os.dup(self._file))
        if not descriptors:
            return None

        def sync() -> None:
            for descriptor in descriptors:
                with unreadable_state(self._directory):
                    try:
                        os.fdatasync(descriptor)
                    finally:
                        os.close(descriptor)

        return sync

    def close(self) -> None:
        """The worker ends."""
        self._end_segment()
        self.sync()

    def _begin_segment(self) -> None:
        self._segment += 1
        path = self._directory / f"{self._worker}-{self._segment:06}{_SUFFIX}"
        with unreadable_state(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                # Held until the process ends, however it does: whoever gets it knows that nobody writes here any more.
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Room that a full disk does not have must be missed here, and not when the memory is written to.
                os.posix_fallocate(self._file, 0, self._max_segment_bytes)
                # Zeros that are written, and not only promised: else every sync has to make blocks of the file real,
                # which cost 4 us of CPU for each request at ten syncs a second.
                os.pwrite(self._file, bytes(self._max_segment_bytes), 0)
                self._map = mmap.mmap(self._file, self._max_segment_bytes)
            except OSError:
                os.close(self._file)
                path.unlink()
                raise
        self._size = 0

    def _end_segment(self) -> None:
        if self._map is None:
            return
        self._map.close()
        self._map = None
        self._dirty = False
        self._ended.append(self._file)
        with unreadable_state(self._directory):
            os.ftruncate(self._file, self._size)


class Segment:
    """One file, as its reader has it. `read` gives what is new; `ended` says that there will be no more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self._decoder = msgspec.msgpack.Decoder(tuple[RowNames, RowNumbers])
        self.is_damaged = False

    def read(self, limit: int) -> list[LedgerRow]:
        """At most `limit` rows that follow those already read. A record that is not whole yet is left for later."""
        rows: list[LedgerRow] = []
        self.is_damaged = False
        with self.path.open("rb") as file:
            file.seek(self.offset)
            while len(rows) < limit:
                header = file.read(_HEADER.size)
                if len(header) < _HEADER.size:
                    break
                length, checksum = _HEADER.unpack(header)
                if length == 0:
                    break
                content = file.read(length) if length <= _MAX_RECORD_BYTES else b""
                if len(content) < length and length <= _MAX_RECORD_BYTES:
                    break
                try:
                    if length > _MAX_RECORD_BYTES or zlib.crc32(content) != checksum:
                        raise msgspec.DecodeError("the checksum does not fit")
                    names, numbers = self._decoder.decode(content)
                    rows.append(LedgerRow(**msgspec.structs.asdict(names), **msgspec.structs.asdict(numbers)))
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
