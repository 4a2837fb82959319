"""The board against a plain dictionary, through restarts and crashes; and its readers against any damage."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pilothouse.model.errors import PilothouseError
from pilothouse.telemetry.board import BoardWriter, board_path, clear_gauges, read_board, read_boards
from pilothouse.telemetry.board_layout import BOARD_BYTES, DIRECTORY_BYTES, HEADER_BYTES, Kind

BOUNDS = (1.0, 10.0, 100.0)

names = st.sampled_from(["a", "b", "c"])
labels = st.dictionaries(st.sampled_from(["model", "code"]), st.text(max_size=5), max_size=2)
amounts = st.integers(0, 1000)

Key = tuple[str, tuple[tuple[str, str], ...]]


def key_of(name: str, label_values: dict[str, str]) -> Key:
    return name, tuple(sorted(label_values.items()))


class BoardMachine(RuleBasedStateMachine):
    """Two workers; what is expected is kept per worker and added up."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name)
        self.writers: list[BoardWriter] = []
        self.counters: dict[Key, float] = {}
        self.gauges: list[dict[Key, float]] = [{}, {}]
        self.buckets: dict[Key, list[int]] = {}

    @initialize()
    def start(self) -> None:
        self.writers = [BoardWriter(board_path(self.path, worker), worker=worker) for worker in range(2)]

    @rule(worker=st.integers(0, 1), name=names, label_values=labels, amount=amounts)
    def count(self, worker: int, name: str, label_values: dict[str, str], amount: int) -> None:
        self.writers[worker].counter(f"{name}_total", label_values).add(amount)
        key = key_of(f"{name}_total", label_values)
        self.counters[key] = self.counters.get(key, 0) + amount

    @rule(worker=st.integers(0, 1), name=names, label_values=labels, amount=st.integers(-50, 50))
    def change_gauge(self, worker: int, name: str, label_values: dict[str, str], amount: int) -> None:
        self.writers[worker].gauge(name, label_values).add(amount)
        key = key_of(name, label_values)
        self.gauges[worker][key] = self.gauges[worker].get(key, 0) + amount

    @rule(worker=st.integers(0, 1), name=names, label_values=labels, amount=amounts)
    def observe(self, worker: int, name: str, label_values: dict[str, str], amount: int) -> None:
        self.writers[worker].histogram(f"{name}_seconds", BOUNDS, label_values).observe(amount)
        buckets = self.buckets.setdefault(key_of(f"{name}_seconds", label_values), [0, 0, 0, 0])
        buckets[next((index for index, bound in enumerate(BOUNDS) if amount <= bound), 3)] += 1

    @rule(worker=st.integers(0, 1))
    def restart(self, worker: int) -> None:
        self.writers[worker].close()
        self.writers[worker] = BoardWriter(board_path(self.path, worker), worker=worker)
        self.gauges[worker] = dict.fromkeys(self.gauges[worker], 0)

    @rule(worker=st.integers(0, 1))
    def clear_a_living_worker(self, worker: int) -> None:
        assert clear_gauges(board_path(self.path, worker)) is False

    @invariant()
    def reads_what_was_written(self) -> None:
        boards = read_boards(self.path)
        assert boards.problems == ()
        read = {(sample.name, sample.labels): sample for sample in boards.samples if "dropped" not in sample.name}
        expected_gauges: dict[Key, float] = {}
        for gauges in self.gauges:
            for key, value in gauges.items():
                expected_gauges[key] = expected_gauges.get(key, 0) + value
        assert {k: s.value for k, s in read.items() if s.kind is Kind.COUNTER} == self.counters
        assert {k: s.value for k, s in read.items() if s.kind is Kind.GAUGE} == expected_gauges
        assert {k: list(s.buckets) for k, s in read.items() if s.kind is Kind.HISTOGRAM} == self.buckets

    def teardown(self) -> None:
        for writer in self.writers:
            writer.close()
        self.directory.cleanup()


BoardMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestBoardMachine = BoardMachine.TestCase


def board_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = board_path(Path(directory), 3)
        writer = BoardWriter(path, worker=3)
        for index in range(20):
            writer.counter("requests_total", {"model": f"m{index}"}).add(index)
            writer.histogram("latency_seconds", BOUNDS, {"model": f"m{index}"}).observe(index)
            writer.gauge("in_flight", {"model": f"m{index}"}).set(index)
        writer.close()
        return path.read_bytes()


WHOLE = board_bytes()
USED_DIRECTORY = len(WHOLE[HEADER_BYTES : HEADER_BYTES + DIRECTORY_BYTES].rstrip(b"\0"))


def read_or_refuse(path: Path) -> bool:
    """Whether the file could be read; anything but reading or the documented refusal fails the test."""
    codes = []
    try:
        read_board(path)
    except PilothouseError as error:
        codes.append(error.code)
    assert codes in ([], ["state_unreadable"])
    return not codes


@given(size=st.integers(0, BOARD_BYTES))
@settings(max_examples=50, deadline=None)
def test_a_file_cut_anywhere_is_refused_and_a_new_writer_begins_again(size: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = board_path(Path(directory), 0)
        path.write_bytes(WHOLE[:size])
        assert read_or_refuse(path) is (size == BOARD_BYTES)
        assert clear_gauges(path) is True
        writer = BoardWriter(path, worker=0)
        before = read_boards(path.parent).value("requests_total", {"model": "m1"})
        writer.counter("requests_total", {"model": "m1"}).add()
        writer.close()
        assert read_boards(path.parent).value("requests_total", {"model": "m1"}) == before + 1


@given(
    damage=st.lists(
        st.tuples(st.integers(0, HEADER_BYTES + USED_DIRECTORY + 64), st.binary(min_size=1, max_size=16)), max_size=4
    )
)
@settings(max_examples=100, deadline=None)
def test_no_damage_is_more_than_a_refusal(damage: list[tuple[int, bytes]]) -> None:
    content = bytearray(WHOLE)
    for offset, junk in damage:
        content[offset : offset + len(junk)] = junk
    with tempfile.TemporaryDirectory() as directory:
        path = board_path(Path(directory), 0)
        path.write_bytes(content)
        read_or_refuse(path)
        assert len(read_boards(path.parent).problems) <= 1
        assert clear_gauges(path) is True
        writer = BoardWriter(path, worker=0)
        writer.counter("fresh_total", {}).add(3)
        writer.close()
        assert read_boards(path.parent).value("fresh_total", {}) == 3
