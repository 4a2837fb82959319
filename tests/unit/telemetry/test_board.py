"""The board: counting, restarts, dead workers, damaged files and the bound on series."""

import errno
import fcntl
import os
import signal
import stat
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import (
    OTHER,
    BoardWriter,
    Sample,
    board_path,
    clear_gauges,
    read_board,
    read_boards,
)
from pilothouse.telemetry.board_layout import (
    BOARD_BYTES,
    DIRECTORY_BYTES,
    HEADER_BYTES,
    RESERVED_DIRECTORY_BYTES,
    RESERVED_SLOTS,
    SLOT_COUNT,
    Kind,
    Record,
    Word,
    pack_record,
)

BOUNDS = (0.1, 1.0, 10.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return board_path(tmp_path, 0)


@pytest.fixture
def writer(path: Path) -> Iterator[BoardWriter]:
    writer = BoardWriter(path, worker=0)
    yield writer
    writer.close()


def sample_of(path: Path, name: str) -> Sample:
    (sample,) = [sample for sample in read_board(path).samples if sample.name == name]
    return sample


def test_a_handle_counts_where_another_process_can_read_it(writer: BoardWriter, path: Path) -> None:
    requests = writer.counter("requests_total", {"model": "m", "code": "200"})
    requests.add()
    requests.add(2.5)
    in_flight = writer.gauge("in_flight", {})
    in_flight.add(3)
    in_flight.add(-1)
    connections = writer.gauge("connections", {})
    connections.set(7)
    writer.set_snapshot_version(42)

    board = read_board(path)

    assert (board.worker, board.pid, board.snapshot_version) == (0, os.getpid(), 42)
    values = {(sample.name, sample.labels): sample.value for sample in board.samples}
    assert values[("requests_total", (("code", "200"), ("model", "m")))] == 3.5
    assert values[("in_flight", ())] == 2
    assert values[("connections", ())] == 7


def test_a_bound_is_inclusive_and_the_last_bucket_has_no_bound(writer: BoardWriter, path: Path) -> None:
    latency = writer.histogram("latency_seconds", BOUNDS, {})
    for value in (0.0, 0.1, 0.11, 1.0, 10.0, 10.1, 1e9):
        latency.observe(value)

    sample = sample_of(path, "latency_seconds")

    assert list(sample.buckets) == [2, 2, 1, 2]
    assert sample.value == pytest.approx(0.0 + 0.1 + 0.11 + 1.0 + 10.0 + 10.1 + 1e9)


def test_the_same_series_asked_for_twice_is_one(writer: BoardWriter, path: Path) -> None:
    writer.counter("requests_total", {"model": "m", "code": "200"}).add()
    writer.counter("requests_total", {"code": "200", "model": "m"}).add()

    assert sample_of(path, "requests_total").value == 2


def test_a_restarted_worker_carries_counters_on_and_clears_gauges(path: Path) -> None:
    first = BoardWriter(path, worker=0)
    first.counter("requests_total", {"model": "m"}).add(5)
    first.histogram("latency_seconds", BOUNDS, {}).observe(0.5)
    os.close(first._fd)  # as when the process is killed: gauges stay, the lock goes
    unlocked_gauge = first.gauge("in_flight", {})
    unlocked_gauge.add(9)
    release_mapping(first)
    del first, unlocked_gauge

    second = BoardWriter(path, worker=0)
    assert sample_of(path, "in_flight").value == 0
    second.counter("requests_total", {"model": "m"}).add()
    second.histogram("latency_seconds", BOUNDS, {}).observe(0.5)
    second.counter("later_total", {}).add()
    second.close()

    assert sample_of(path, "requests_total").value == 6
    assert sample_of(path, "latency_seconds").buckets == (0, 2, 0, 0)
    assert sample_of(path, "later_total").value == 1


def release_mapping(writer: BoardWriter) -> None:
    """Drop the mapping, whose duplicate of the descriptor still holds the lock."""
    for view in (writer._words, writer._directory, writer._slots, writer._memory):
        view.release()


def test_closing_clears_gauges_and_leaves_handles_harmless(path: Path) -> None:
    writer = BoardWriter(path, worker=0)
    in_flight = writer.gauge("in_flight", {})
    in_flight.add(3)
    requests = writer.counter("requests_total", {})

    writer.close()
    writer.close()

    assert sample_of(path, "in_flight").value == 0
    requests.add()


def test_a_board_has_one_living_writer(writer: BoardWriter, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilothouse.telemetry.board._LOCK_PATIENCE_S", 0.0)
    with pytest.raises(PilothouseError, match="another process writes it") as caught:
        BoardWriter(path, worker=0)
    assert caught.value.code == "state_unreadable"

    writer.close()
    BoardWriter(path, worker=0).close()


def test_only_the_owner_may_read_it(writer: BoardWriter, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_not_followed(tmp_path: Path, path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    path.symlink_to(victim)

    with pytest.raises(PilothouseError):
        BoardWriter(path, worker=0)
    with pytest.raises(PilothouseError):
        read_board(path)
    with pytest.raises(PilothouseError):
        clear_gauges(path)
    assert victim.read_bytes() == b"precious"


def test_a_missing_directory_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(PilothouseError, match="No such file"):
        BoardWriter(tmp_path / "gone" / "worker-0.board", worker=0)


@pytest.mark.parametrize(
    "content", [b"", b"short", b"x" * BOARD_BYTES, bytes(BOARD_BYTES), b"y" * (BOARD_BYTES + 1000)]
)
def test_what_is_not_a_board_is_refused_by_readers_and_replaced_by_a_writer(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(PilothouseError):
        read_board(path)
    assert clear_gauges(path) is True

    writer = BoardWriter(path, worker=0)
    writer.counter("requests_total", {}).add()
    writer.close()

    assert sample_of(path, "requests_total").value == 1


def test_a_series_that_is_just_being_published_is_not_read_and_then_overwritten(path: Path) -> None:
    writer = BoardWriter(path, worker=0)
    writer.counter("requests_total", {}).add()
    end = HEADER_BYTES + writer._directory_end
    writer._words[Word.SERIES] += 1  # the count is seen before the record is
    writer.close()
    names = {sample.name for sample in read_board(path).samples}
    assert "requests_total" in names

    again = BoardWriter(path, worker=0)
    again.counter("other_total", {}).add(4)
    again.close()

    assert sample_of(path, "other_total").value == 4
    assert path.read_bytes()[end : end + 8] != bytes(8)


def with_crc(body: bytes) -> bytes:
    return struct.pack("=II", len(body), zlib.crc32(body)) + body


@pytest.mark.parametrize(
    ("record", "count", "complaint"),
    [
        (pack_record(Record("evil_total", Kind.COUNTER, (), SLOT_COUNT)), 1, "outside the slots"),
        (pack_record(Record("evil_total", Kind.COUNTER, (), -1)), 1, "outside the slots"),
        (with_crc(b"\xc1"), 1, "cannot be read"),
        (with_crc(msgspec.msgpack.encode(["evil_total", "summary", [], 0])), 1, "cannot be read"),
        (bytes(8), 2, "damaged"),
        (with_crc(msgspec.msgpack.encode(["x" * (DIRECTORY_BYTES - 100), "counter", [], 0]))[:-4], 2, "damaged"),
    ],
)
def test_a_directory_that_makes_no_sense_is_refused(path: Path, record: bytes, count: int, complaint: str) -> None:
    writer = BoardWriter(path, worker=0)
    room = len(writer._directory) - writer._directory_end
    writer._directory[writer._directory_end : writer._directory_end + min(len(record), room)] = record[:room]
    writer._words[Word.SERIES] += count
    writer.close()

    with pytest.raises(PilothouseError, match=complaint):
        read_board(path)


def test_more_series_than_the_directory_can_hold_are_refused(path: Path) -> None:
    writer = BoardWriter(path, worker=0)
    rest = len(writer._directory) - writer._directory_end
    filler = with_crc(msgspec.msgpack.encode(["x" * (rest - 60), "counter", [], 0]))
    padding = rest - len(filler)
    filler = with_crc(msgspec.msgpack.encode(["x" * (rest - 60 + padding), "counter", [], 0]))
    writer._directory[writer._directory_end :] = filler
    writer._words[Word.SERIES] += 3
    writer.close()

    with pytest.raises(PilothouseError, match="outside the directory"):
        read_board(path)


def test_another_layout_is_refused_by_readers_and_begun_anew_by_a_writer(path: Path) -> None:
    writer = BoardWriter(path, worker=0)
    writer.counter("requests_total", {}).add(5)
    writer._words[Word.LAYOUT_VERSION] = 99
    writer.close()
    with pytest.raises(PilothouseError, match="version 99"):
        read_board(path)

    again = BoardWriter(path, worker=0)
    again.counter("requests_total", {}).add()
    again.close()

    assert sample_of(path, "requests_total").value == 1


def test_a_full_disk_shows_when_the_board_is_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(PilothouseError, match="No space left"):
        BoardWriter(path, worker=0)


def test_a_new_writer_waits_for_who_is_just_clearing_gauges(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    BoardWriter(path, worker=0).close()
    clearing = os.open(path, os.O_RDWR)
    fcntl.flock(clearing, fcntl.LOCK_EX)
    monkeypatch.setattr("pilothouse.telemetry.board.time.sleep", lambda pause: fcntl.flock(clearing, fcntl.LOCK_UN))

    BoardWriter(path, worker=0).close()

    os.close(clearing)


def test_a_metric_whose_bounds_changed_counts_in_its_latest_form(path: Path) -> None:
    old = BoardWriter(path, worker=0)
    old.histogram("latency_seconds", BOUNDS, {}).observe(0.5)
    old.close()

    new = BoardWriter(path, worker=0)
    new.histogram("latency_seconds", (0.2, 2.0), {}).observe(0.1)
    new.close()

    assert sample_of(path, "latency_seconds").bounds == (0.2, 2.0)
    assert sample_of(path, "latency_seconds").buckets == (1, 0, 0)


def test_a_full_board_counts_the_rest_under_other(path: Path) -> None:
    writer = BoardWriter(path, worker=0)
    asked = SLOT_COUNT + 100
    for index in range(asked):
        writer.counter("requests_total", {"model": f"m{index}"}).add()
    writer.counter("late_total", {"model": "m", "code": "200"}).add(2)
    writer.close()
    writer = BoardWriter(path, worker=0)
    writer.counter("requests_total", {"model": "yet another"}).add()
    writer.counter("requests_total", {"model": "m0"}).add()
    writer.close()

    boards = read_boards(path.parent)

    assert boards.value("requests_total", {}) == asked + 2
    dropped = boards.value(catalogue.SERIES_DROPPED.name, {})
    assert boards.value("requests_total", {"model": OTHER}) == dropped - 1 > 100
    assert boards.value("requests_total", {"model": "m0"}) == 2
    assert boards.value("late_total", {"model": OTHER, "code": OTHER}) == 2


def test_more_metric_names_than_any_catalogue_has_are_a_defect(path: Path, writer: BoardWriter) -> None:
    def ask_for_ever_more() -> None:
        for index in range(SLOT_COUNT):
            writer.counter(f"metric_{index}_total", {})

    with pytest.raises(ValueError, match="no room left"):
        ask_for_ever_more()
    assert read_boards(path.parent).problems == ()


def test_a_full_directory_counts_the_rest_under_other(path: Path) -> None:
    writer = BoardWriter(path, worker=0)
    for index in range(40):
        writer.counter("requests_total", {"model": f"{index:<20000}"}).add()
    writer.close()

    boards = read_boards(path.parent)

    assert boards.value("requests_total", {}) == 40
    assert boards.value("requests_total", {"model": OTHER}) > 0


def test_the_reserve_holds_the_whole_catalogue() -> None:
    records = [
        Record(spec.name, spec.kind, tuple((label, OTHER) for label in spec.labels), SLOT_COUNT, spec.bounds)
        for spec in catalogue.METRICS
        if spec.source is catalogue.Source.WORKER
    ]

    assert sum(record.width for record in records) <= RESERVED_SLOTS
    assert sum(len(pack_record(record)) for record in records) <= RESERVED_DIRECTORY_BYTES


def test_workers_add_up_and_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for worker, count in ((0, 1), (1, 10), (12, 100)):
        writer = BoardWriter(board_path(tmp_path, worker), worker=worker)
        writer.counter("requests_total", {"model": "m"}).add(count)
        writer.histogram("latency_seconds", BOUNDS, {}).observe(float(count))
        writer.close()
    board_path(tmp_path, 2).write_bytes(b"damaged")
    (tmp_path / "worker-old.board").write_bytes(b"not ours")
    (tmp_path / "notes.txt").write_bytes(b"not ours")

    boards = read_boards(tmp_path)

    assert sorted(board.worker for board in boards.boards) == [0, 1, 12]
    assert boards.value("requests_total", {"model": "m"}) == 111
    (latency,) = [sample for sample in boards.samples if sample.name == "latency_seconds"]
    assert (latency.buckets, latency.value) == ((0, 1, 1, 1), 111)
    (problem,) = boards.problems
    assert "worker-2.board" in problem


def test_workers_that_disagree_about_a_metric_are_named_and_not_added(tmp_path: Path) -> None:
    for worker, bounds in ((0, BOUNDS), (1, (5.0,))):
        writer = BoardWriter(board_path(tmp_path, worker), worker=worker)
        writer.histogram("latency_seconds", bounds, {}).observe(0.5)
        writer.close()

    boards = read_boards(tmp_path)

    (latency,) = [sample for sample in boards.samples if sample.name == "latency_seconds"]
    assert list(latency.buckets) == [0, 1, 0, 0]
    assert boards.problems == ("worker 1: latency_seconds is not the same metric as another worker's",)


def test_an_empty_or_missing_directory_has_no_boards(tmp_path: Path) -> None:
    assert read_boards(tmp_path).boards == ()
    assert read_boards(tmp_path / "gone").samples == ()


def test_a_sum_needs_all_the_labels_asked_for(writer: BoardWriter, path: Path) -> None:
    writer.gauge("in_flight", {"model": "a", "replica": "a-0"}).set(1)
    writer.gauge("in_flight", {"model": "a", "replica": "a-1"}).set(10)
    writer.gauge("in_flight", {"model": "b", "replica": "b-0"}).set(100)

    boards = read_boards(path.parent)

    assert boards.value("in_flight", {"model": "a"}) == 11
    assert boards.value("in_flight", {"replica": "a-1"}) == 10
    assert boards.value("in_flight", {"replica": "c-0"}) == 0
    assert boards.value("in_flight", {}) == 111


COUNT_FOREVER = """
import sys
from pathlib import Path
from pilothouse.telemetry.board import BoardWriter
writer = BoardWriter(Path(sys.argv[1]), worker=0)
writer.gauge("in_flight", {}).set(5)
requests = writer.counter("requests_total", {})
latency = writer.histogram("latency_seconds", (0.1, 1.0), {})
index = 0
while True:
    requests.add()
    latency.observe(0.5)
    if index < 2000:
        writer.counter("series_total", {"index": str(index)}).add()
    if index == 0:
        print("counting", flush=True)
    index += 1
"""


def test_a_reader_beside_a_busy_writer_sees_whole_numbers_and_a_killed_writer_leaves_its_counters(path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", COUNT_FOREVER, str(path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"counting\n"
        before = 0.0
        for _ in range(100):
            boards = read_boards(path.parent)
            assert boards.problems == ()
            counted = boards.value("requests_total", {})
            assert counted >= before
            assert counted == int(counted)
            assert all(sample.value in (0, 1) for sample in boards.samples if sample.name == "series_total")
            before = counted
        assert clear_gauges(path) is False
        assert read_boards(path.parent).value("in_flight", {}) == 5
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    counted = read_boards(path.parent).value("requests_total", {})
    assert clear_gauges(path) is True
    after = read_boards(path.parent)
    assert after.value("in_flight", {}) == 0
    assert after.value("requests_total", {}) == counted >= before
    BoardWriter(path, worker=0).close()


def test_clearing_the_gauges_of_a_board_that_is_not_there_is_nothing_to_do(path: Path) -> None:
    assert clear_gauges(path) is True
    assert not path.exists()
