import os
import stat
from pathlib import Path

import pytest

from pilothouse.model.ids import ReplicaId
from pilothouse.placement import log_files
from pilothouse.placement.log_files import log_path, open_log, tail

A0 = ReplicaId("a-0")


def write_run(path: Path, *lines: str) -> None:
    descriptor = open_log(path, A0)
    for line in lines:
        os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


def test_the_tail_is_of_the_latest_run_alone(tmp_path: Path) -> None:
    path = log_path(tmp_path, A0)
    write_run(path, "old 1", "old 2")
    write_run(path, "new 1", "new 2", "new 3")
    assert tail(path, 20) == ("new 1", "new 2", "new 3")
    assert tail(path, 2) == ("new 2", "new 3")
    assert tail(path, 0) == ()
    assert path.read_text().count("a-0 starts") == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_there_is_no_tail_without_a_log(tmp_path: Path) -> None:
    assert tail(log_path(tmp_path, A0), 5) == ()


def test_a_long_log_is_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_TAIL_BYTES", 20)
    path = log_path(tmp_path, A0)
    write_run(path, *(f"line {number}" for number in range(100)))
    assert tail(path, 20) == ("line 98", "line 99")


def test_what_would_steer_a_terminal_is_left_out(tmp_path: Path) -> None:
    path = log_path(tmp_path, A0)
    write_run(path, "\x1b[31mred\x1b[0m \x1b[2Jx\x07\x00y\tz\x7f", "\x1b]0;title\x07")
    assert tail(path, 2) == ("red xy\tz", "]0;title")


def test_bytes_that_are_not_text_do_not_hide_the_rest(tmp_path: Path) -> None:
    path = log_path(tmp_path, A0)
    path.write_bytes(b"\xff\xfe\nfine\n")
    assert tail(path, 1) == ("fine",)


def test_a_large_log_is_put_aside_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_ROTATE_ABOVE_BYTES", 50)
    path = log_path(tmp_path, A0)
    for run in ("first", "second", "third"):
        write_run(path, run * 10)
    assert "third" in path.read_text()
    assert "second" in (tmp_path / "a-0.log.1").read_text()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a-0.log", "a-0.log.1"]
