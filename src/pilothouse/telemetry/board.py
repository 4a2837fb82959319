"""The board: what gateway workers count, in memory that the controller reads.

Each worker writes one memory-mapped file, `worker-<index>.board`, and nobody else does while it lives (it holds the
file's lock). Counting is one addition to an 8-byte slot: no lock, no call into the system, no object made. The
controller reads all files, adds them up by name and labels, and never waits for a worker nor makes one wait.

A worker that restarts carries its counters on and finds its gauges at zero.
"""

import fcntl
import mmap
import os
import re
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board_layout import (
    BOARD_BYTES,
    DIRECTORY_BYTES,
    HEADER_BYTES,
    LAYOUT_VERSION,
    MAGIC,
    RESERVED_DIRECTORY_BYTES,
    RESERVED_SLOTS,
    SLOT_COUNT,
    DamagedBoard,
    Kind,
    Record,
    Word,
    check_header,
    pack_record,
    records,
    slots_needed,
)

OTHER = "other"

_LOCK_PATIENCE_S = 1.0  # clear_gauges holds the lock for microseconds; a living worker for as long as it lives
_LOCK_PAUSE_S = 0.01
_BOARD_NAME = re.compile(r"worker-\d+\.board")

Labels = tuple[tuple[str, str], ...]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one series. `labels` are sorted by name.

    Counters and gauges have `value`. A histogram has `buckets` (counts per bucket, not cumulative, the last one for
    what is above the last of `bounds`) and its `value` is the sum of what was observed.
    """

    name: str
    kind: Kind
    labels: Labels
    value: float
    bounds: tuple[float, ...] = ()
    buckets: tuple[float, ...] = ()


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's file as read at one moment."""

    worker: int
    pid: int
    snapshot_version: int
    samples: tuple[Sample, ...]


class Boards(msgspec.Struct, frozen=True, kw_only=True):
    """All workers' files: each, the sums over them, and one line for each file or series that had to be left out."""

    boards: tuple[Board, ...]
    samples: tuple[Sample, ...]
    problems: tuple[str, ...] = ()

    def value(self, name: str, labels: Mapping[str, str]) -> float:
        """The sum of a counter or gauge over the series that have at least these labels; 0 if there are none."""
        wanted = set(labels.items())
        return sum(sample.value for sample in self.samples if sample.name == name and wanted <= set(sample.labels))


class Counter:
    """Goes up. Valid as long as it is referenced, also after the writer was closed.

    Like the other handles it shows its place, `slots[slot]`, to those who add to many at once.
    """

    __slots__ = ("slot", "slots")

    def __init__(self, slots: "memoryview[float]", slot: int) -> None:
        self.slots = slots
        self.slot = slot

    def add(self, n: float = 1.0) -> None:
        """Count `n` more."""
        self.slots[self.slot] += n


class Gauge:
    """Goes up and down. Workers' gauges are added up, so it has to be something that can be."""

    __slots__ = ("slot", "slots")

    def __init__(self, slots: "memoryview[float]", slot: int) -> None:
        self.slots = slots
        self.slot = slot

    def add(self, n: float) -> None:
        """Change by `n`, which may be negative."""
        self.slots[self.slot] += n

    def set(self, value: float) -> None:
        """Change to `value`."""
        self.slots[self.slot] = value


class Histogram:
    """Counts values by bucket."""

    __slots__ = ("bounds", "slot", "slots", "sum_slot")

    def __init__(self, slots: "memoryview[float]", slot: int, bounds: tuple[float, ...]) -> None:
        self.slots = slots
        self.slot = slot
        self.bounds = bounds
        self.sum_slot = slot + len(bounds) + 1

    def observe(self, value: float) -> None:
        """Count `value`, in the unit of the metric's name."""
        slots = self.slots
        slots[self.slot + bisect_left(self.bounds, value)] += 1.0
        slots[self.sum_slot] += value


class BoardWriter:
    """A worker's own board. Ask for each series once and keep the handle: handles are cheap to use, not to get.

    The same series asked for again is the same slots. When the board is full, a new series lands in the one of its
    name whose label values are all "other", and `pilothouse_metrics_series_dropped_total` counts that.

    Raises PilothouseError `state_unreadable` if the file cannot be made, or another living process writes it.
    """

    def __init__(self, path: Path, *, worker: int) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _unusable(path, error.strerror or str(error)) from error
        try:
            _lock_or_raise(self._fd, path)
            # Reserves the pages: a full file system is an error here, and not a SIGBUS while counting.
            os.posix_fallocate(self._fd, 0, BOARD_BYTES)
            self._memory = memoryview(mmap.mmap(self._fd, BOARD_BYTES))
        except OSError as error:
            os.close(self._fd)
            raise _unusable(path, error.strerror or str(error)) from error
        except PilothouseError:
            os.close(self._fd)
            raise
        self._words = self._memory[:HEADER_BYTES].cast("Q")
        self._directory = self._memory[HEADER_BYTES : HEADER_BYTES + DIRECTORY_BYTES]
        self._slots = self._memory[HEADER_BYTES + DIRECTORY_BYTES : BOARD_BYTES].cast("d")
        self._series: dict[tuple[str, Labels], Record] = {}
        self._directory_end = 0
        self._next_slot = 0
        self._closed = False
        self._carry_on_or_begin()
        self._words[Word.WORKER] = worker
        self._words[Word.PID] = os.getpid()
        self._dropped = self.counter(catalogue.SERIES_DROPPED.name, {})

    def counter(self, name: str, labels: Mapping[str, str]) -> Counter:
        """The counter of this name (it ends in `_total`) and labels."""
        return Counter(self._slots, self._record(name, Kind.COUNTER, labels, ()).slot)

    def gauge(self, name: str, labels: Mapping[str, str]) -> Gauge:
        """The gauge of this name and labels."""
        return Gauge(self._slots, self._record(name, Kind.GAUGE, labels, ()).slot)

    def histogram(self, name: str, bounds: tuple[float, ...], labels: Mapping[str, str]) -> Histogram:
        """The histogram of this name and labels. `bounds` are upper, inclusive and ascending; +Inf is implied."""
        record = self._record(name, Kind.HISTOGRAM, labels, bounds)
        return Histogram(self._slots, record.slot, record.bounds)

    def set_snapshot_version(self, version: int) -> None:
        """Tell which fleet snapshot this worker serves from now on."""
        self._words[Word.SNAPSHOT_VERSION] = version

    def close(self) -> None:
        """Set the gauges to zero and let another process write this board. Handles stay valid but count for nobody."""
        if self._closed:
            return
        self._closed = True
        for record in self._series.values():
            if record.kind is Kind.GAUGE:
                self._slots[record.slot] = 0.0
        # The mapping keeps a duplicate of the descriptor as long as a handle lives: closing ours would not unlock.
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)

    def _carry_on_or_begin(self) -> None:
        try:
            check_header(self._words)
            whole = 0
            for record, end in records(self._directory, self._words[Word.SERIES]):
                whole += 1
                self._series[(record.name, record.labels)] = record
                self._directory_end = end
                self._next_slot = max(self._next_slot, record.slot + record.width)
                if record.kind is Kind.GAUGE:
                    self._slots[record.slot] = 0.0
            self._words[Word.SERIES] = whole
        except DamagedBoard:
            self._begin()

    def _begin(self) -> None:
        # In place and never shorter: a reader that has the old file mapped must not lose pages under its feet.
        self._words[Word.MAGIC] = 0
        self._memory[8:BOARD_BYTES] = bytes(BOARD_BYTES - 8)
        self._series.clear()
        self._directory_end = self._next_slot = 0
        self._words[Word.LAYOUT_VERSION] = LAYOUT_VERSION
        self._words[Word.MAGIC] = MAGIC

    def _record(self, name: str, kind: Kind, labels: Mapping[str, str], bounds: tuple[float, ...]) -> Record:
        key = (name, tuple(sorted(labels.items())))
        known = self._series.get(key)
        if known is not None and known.kind is kind and known.bounds == bounds:
            return known
        return self._append(key, kind, bounds, spare=False) or self._overflow(name, kind, labels, bounds)

    def _overflow(self, name: str, kind: Kind, labels: Mapping[str, str], bounds: tuple[float, ...]) -> Record:
        self._dropped.add()
        key = (name, tuple((label, OTHER) for label in sorted(labels)))
        known = self._series.get(key)
        if known is not None and known.kind is kind and known.bounds == bounds:
            return known
        record = self._append(key, kind, bounds, spare=True)
        if record is None:
            raise ValueError(f"the board has no room left for a metric of the name {name}")
        return record

    def _append(self, key: tuple[str, Labels], kind: Kind, bounds: tuple[float, ...], *, spare: bool) -> Record | None:
        name, labels = key
        record = Record(name, kind, labels, self._next_slot, bounds)
        packed = pack_record(record)
        slot_limit = SLOT_COUNT if spare else SLOT_COUNT - RESERVED_SLOTS
        directory_limit = DIRECTORY_BYTES if spare else DIRECTORY_BYTES - RESERVED_DIRECTORY_BYTES
        directory_end = self._directory_end + len(packed)
        slot_end = self._next_slot + slots_needed(kind, bounds)
        if slot_end > slot_limit or directory_end > directory_limit:
            return None
        self._directory[self._directory_end : directory_end] = packed
        self._words[Word.SERIES] += 1
        self._directory_end = directory_end
        self._next_slot = slot_end
        self._series[key] = record
        return record


def board_path(directory: Path, worker: int) -> Path:
    """The file of the worker with this index."""
    return directory / f"worker-{worker}.board"


def read_board(path: Path) -> Board:
    """One worker's board as it is now.

    Raises PilothouseError `state_unreadable` if there is no such file or it is not a whole board.
    """
    try:
        with _mapped(path, writable=False) as memory:
            return _parse(memory)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except DamagedBoard as error:
        raise _unusable(path, str(error)) from error


def read_boards(directory: Path) -> Boards:
    """All boards in a directory, living workers' and dead ones', and their sums.

    Never raises for what it finds: a file that cannot be read is left out and named in `problems`.
    """
    boards: list[Board] = []
    problems: list[str] = []
    for path in sorted(directory.glob("worker-*.board")):
        if not _BOARD_NAME.fullmatch(path.name):
            continue
        try:
            boards.append(read_board(path))
        except PilothouseError as error:
            problems.append(error.message)
    samples: dict[tuple[str, Labels], Sample] = {}
    for board in boards:
        for sample in board.samples:
            key = (sample.name, sample.labels)
            known = samples.get(key)
            if known is None:
                samples[key] = sample
            elif known.kind is sample.kind and known.bounds == sample.bounds:
                samples[key] = _sum(known, sample)
            else:
                problems.append(f"worker {board.worker}: {sample.name} is not the same metric as another worker's")
    return Boards(boards=tuple(boards), samples=tuple(samples.values()), problems=tuple(problems))


def clear_gauges(path: Path) -> bool:
    """Set the gauges of a dead worker to zero; its counters stay. True if that is done or there is nothing to do.

    False if a living process writes this board: then it is not touched. A file that is missing or not a whole board
    has no gauges. Raises PilothouseError `state_unreadable` if it may not be opened.
    """
    try:
        with (
            _mapped(path, writable=True) as memory,
            memory[HEADER_BYTES + DIRECTORY_BYTES : BOARD_BYTES].cast("d") as slots,
        ):
            for record in _latest(memory):
                if record.kind is Kind.GAUGE:
                    slots[record.slot] = 0.0
    except BlockingIOError:
        return False
    except (FileNotFoundError, DamagedBoard):
        return True
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    return True


@contextmanager
def _mapped(path: Path, *, writable: bool) -> Iterator[memoryview]:
    """The whole file as memory. Writable means alone: BlockingIOError if a living worker has it."""
    fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if writable:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = os.fstat(fd).st_size
        if size < BOARD_BYTES:
            raise DamagedBoard(f"the file has {size} bytes, a board has {BOARD_BYTES}")
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        with mmap.mmap(fd, BOARD_BYTES, access=access) as mapping, memoryview(mapping) as memory:
            yield memory
    finally:
        os.close(fd)


def _latest(memory: memoryview) -> list[Record]:
    """The board's series. One that was made again with other bounds counts in its latest form."""
    with memory[:HEADER_BYTES].cast("Q") as words, memory[HEADER_BYTES : HEADER_BYTES + DIRECTORY_BYTES] as directory:
        check_header(words)
        latest = {(record.name, record.labels): record for record, _ in records(directory, words[Word.SERIES])}
    return list(latest.values())


def _parse(memory: memoryview) -> Board:
    series = _latest(memory)
    with (
        memory[:HEADER_BYTES].cast("Q") as words,
        memory[HEADER_BYTES + DIRECTORY_BYTES : BOARD_BYTES].cast("d") as slots,
    ):
        return Board(
            worker=words[Word.WORKER],
            pid=words[Word.PID],
            snapshot_version=words[Word.SNAPSHOT_VERSION],
            samples=tuple(_sample(record, slots) for record in series),
        )


def _sample(record: Record, slots: "memoryview[float]") -> Sample:
    values = slots[record.slot : record.slot + record.width].tolist()
    return Sample(
        name=record.name,
        kind=record.kind,
        labels=record.labels,
        value=values[-1],
        bounds=record.bounds,
        buckets=tuple(values[:-1]),
    )


def _sum(left: Sample, right: Sample) -> Sample:
    return msgspec.structs.replace(
        left,
        value=left.value + right.value,
        buckets=tuple(a + b for a, b in zip(left.buckets, right.buckets, strict=True)),
    )


def _lock_or_raise(fd: int, path: Path) -> None:
    give_up_at = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                raise _unusable(path, "another process writes it") from None
            time.sleep(_LOCK_PAUSE_S)
        else:
            return


def _unusable(path: Path, reason: str) -> PilothouseError:
    return PilothouseError("state_unreadable", f"{path}: {reason}")
