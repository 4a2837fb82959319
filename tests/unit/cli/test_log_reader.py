import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilothouse.cli.log_reader import LogReader
from pilothouse.cli.log_rotation import rotate_large_logs
from pilothouse.cli.logs import log_file
from pilothouse.model.errors import PilothouseError


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "replica-0.log"
    path.write_text("one\ntwo\nthree\n")
    return path


@pytest.fixture
def reader(log: Path) -> Iterator[LogReader]:
    with LogReader(log) as opened:
        yield opened


@pytest.mark.parametrize(("lines", "expected"), [(0, []), (2, ["two", "three"]), (9, ["one", "two", "three"])])
def test_the_last_lines(reader: LogReader, lines: int, expected: list[str]) -> None:
    assert reader.last(lines) == expected
    assert reader.read() == []


def test_the_last_lines_of_a_file_of_many_blocks(log: Path) -> None:
    log.write_text("".join(f"{number:0100}\n" for number in range(5000)))
    with LogReader(log) as reader:
        assert [int(line) for line in reader.last(1500)] == list(range(3500, 5000))


def test_lines_that_are_added_come_once_and_whole(log: Path, reader: LogReader) -> None:
    reader.last(1)
    append(log, "fo")
    assert reader.read() == []
    assert reader.unfinished() == "fo"
    append(log, "ur\nfive\n")
    assert reader.read() == ["four", "five"]


def test_a_log_that_is_put_aside_is_read_to_its_end_and_the_new_one_from_its_start(
    log: Path, reader: LogReader
) -> None:
    reader.last(1)
    append(log, "late\nunfini")
    log.replace(log.with_name("replica-0.log.1"))
    assert reader.read() == ["late"]
    append(log, "new\n")
    assert reader.read() == ["unfini", "new"]


def test_a_log_that_is_cut_short_is_read_from_its_start(log: Path, reader: LogReader) -> None:
    reader.last(3)
    os.truncate(log, 0)
    append(log, "new\n")
    assert reader.read() == ["new"]


def test_a_line_without_end_does_not_fill_the_memory(
    log: Path, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilothouse.cli.log_reader._MAX_LINE_BYTES", 4)
    reader.last(0)
    append(log, "endless")
    assert reader.read() == ["endless"]


def test_bytes_that_are_no_text_are_shown_as_such(log: Path) -> None:
    log.write_bytes(b"\xff\n")
    with LogReader(log) as reader:
        assert reader.last(1) == ["\ufffd"]


def test_a_large_log_is_put_aside_while_its_writer_goes_on(log: Path) -> None:
    writer = os.open(log, os.O_WRONLY | os.O_APPEND)
    try:
        rotate_large_logs(log.parent, limit=5)
        os.write(writer, b"four\n")
        rotate_large_logs(log.parent, limit=5)
    finally:
        os.close(writer)
    assert log.read_text() == "four\n"
    aside = log.with_name("replica-0.log.1")
    assert aside.read_text() == "one\ntwo\nthree\n"
    assert aside.stat().st_mode & 0o777 == 0o600


def test_a_log_is_found_by_name_alone(log: Path) -> None:
    assert log_file(log.parent, "replica-0") == log
    with pytest.raises(PilothouseError, match="did you mean replica-0") as refused:
        log_file(log.parent, "replica-O")
    assert refused.value.code == "replica_not_found"
    assert "replica-0" in refused.value.hint
    with pytest.raises(PilothouseError):
        log_file(log.parent / "elsewhere", f"../{log.parent.name}/replica-0")
