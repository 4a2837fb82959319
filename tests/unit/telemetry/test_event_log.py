"""The log of requests: batches, bounds, stuck and vanished readers."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilothouse.telemetry.event_log import MAX_PENDING_BYTES, EventLog


def ended(number: int, text: str = "") -> bytes:
    return json.dumps({"event": "request_ended", "number": number, "text": text}).encode()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError:
            pass


def read_lines(fd: int) -> list[dict[str, Any]]:
    data = b""
    while True:
        try:
            data += os.read(fd, 1 << 20)
        except BlockingIOError:
            return [json.loads(line) for line in data.splitlines()]


def test_nothing_is_written_before_the_flush(pipe: tuple[int, int]) -> None:
    log = EventLog(pipe[1])
    log.write([ended(number=1)])
    log.write([ended(number=2)])
    assert read_lines(pipe[0]) == []

    log.flush()

    assert [line["number"] for line in read_lines(pipe[0])] == [1, 2]
    log.flush()
    assert read_lines(pipe[0]) == []


def test_a_batch_to_a_file_is_whole_and_redacted(tmp_path: Path) -> None:
    with (tmp_path / "requests.log").open("ab") as file:
        log = EventLog(file.fileno())
        for number in range(5000):
            log.write([ended(number=number, text="ph_0123456789abcdef")])
        log.flush()

    lines = [json.loads(line) for line in (tmp_path / "requests.log").read_text().splitlines()]
    assert [line["number"] for line in lines] == list(range(5000))
    assert {line["text"] for line in lines} == {"ph_[redacted]"}


def test_a_stuck_reader_never_blocks_and_the_loss_is_told_when_it_reads_again(pipe: tuple[int, int]) -> None:
    log = EventLog(pipe[1])
    written = 0
    while log.dropped < 10:
        log.write([ended(number=written, text="x" * 1000)])
        written += 1
        if written % 100 == 0:
            log.flush()
    assert written < 2 * (MAX_PENDING_BYTES + 65536) // 1000

    seen: list[dict[str, Any]] = []
    while not seen or seen[-1]["event"] != "events_dropped":
        seen += read_lines(pipe[0])
        log.flush()
        seen += read_lines(pipe[0])

    assert [line["number"] for line in seen[:-1]] == list(range(written - 10))
    assert seen[-1] == {"event": "events_dropped", "count": 10}
    log.write([ended(number=-1)])
    log.flush()
    assert read_lines(pipe[0]) == [{"event": "request_ended", "number": -1, "text": ""}]


def test_a_line_longer_than_a_pipe_takes_at_once_is_lost_alone(pipe: tuple[int, int]) -> None:
    log = EventLog(pipe[1])
    log.write([ended(number=1)])
    log.write([ended(number=2, text="x" * 5000)])
    log.write([ended(number=3)])

    log.flush()

    assert [line.get("number") for line in read_lines(pipe[0])] == [1, 3, None]
    assert log.dropped == 1


def test_a_reader_that_is_gone_loses_events_and_raises_nothing(pipe: tuple[int, int]) -> None:
    log = EventLog(pipe[1])
    os.close(pipe[0])
    for number in range(3):
        log.write([ended(number=number)])

    log.flush()
    log.flush()

    assert log.dropped == 3


def test_a_full_disk_loses_events_and_raises_nothing() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    log = EventLog(fd)
    log.write([ended(number=1)])

    log.flush()

    assert log.dropped == 1
    os.close(fd)
