"""Log lines: their shape, what they survive, and what never gets into them."""

import json
import logging
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.model.units import WallNs
from pilothouse.telemetry import logs
from pilothouse.telemetry.redaction import redact

logger = logging.getLogger("pilothouse.test_logs")


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    root, own = logging.getLogger(), logging.getLogger("pilothouse")
    levels = root.level, own.level
    path = tmp_path / "controller.log"
    logs.configure("controller", path=path)
    yield path
    for handler in root.handlers[:]:
        if isinstance(handler, logs._FdHandler):
            root.removeHandler(handler)
            handler.close()
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    logging.captureWarnings(capture=False)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_has_the_event_and_what_the_caller_adds(log_file: Path) -> None:
    logger.info("replica started", extra={"replica": "d-0", "pid": 12, "weights": Path("w.gguf"), "took_s": 0.5})

    (line,) = lines(log_file)

    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "component": "controller",
        "event": "replica started",
        "logger": "pilothouse.test_logs",
        "replica": "d-0",
        "pid": 12,
        "weights": "w.gguf",
        "took_s": 0.5,
    }


def test_a_field_cannot_replace_what_every_line_has(log_file: Path) -> None:
    logger.info("started", extra={"component": "impostor", "ts": "never"})

    (line,) = lines(log_file)

    assert line["component"] == "controller"
    assert line["ts"] != "never"


def test_an_exception_is_one_field_of_one_line(log_file: Path) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logger.exception("probe failed")

    (line,) = lines(log_file)

    assert "ValueError: first\nsecond" in line["exception"]
    assert line["level"] == "error"


def test_of_a_long_exception_the_end_is_kept(log_file: Path) -> None:
    try:
        raise ValueError("x" * 10 * logs.MAX_EXCEPTION_CHARS + " the end")
    except ValueError:
        logger.exception("probe failed")

    (line,) = lines(log_file)

    assert len(line["exception"]) == logs.MAX_EXCEPTION_CHARS
    assert line["exception"].endswith("the end")


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


class Odd(Unprintable):
    def __repr__(self) -> str:
        return "<odd>"


@pytest.mark.parametrize("value", [object(), {1: {2: "x"}}, b"\xff", float("nan"), "lone \udcff surrogate", Odd(), {3}])
def test_any_value_still_gives_a_line(log_file: Path, value: object) -> None:
    logger.info("odd value", extra={"value": value})

    (line,) = lines(log_file)

    assert "odd value" in line["event"]
    assert "value" in line


def test_arguments_that_do_not_fit_the_message_still_give_a_line() -> None:
    record = logging.makeLogRecord({"msg": "%d of %d", "args": ("one",)})

    assert json.loads(logs.JsonFormatter("controller").format(record))["event"] == "%d of %d"


def test_keys_and_tokens_do_not_get_out(log_file: Path) -> None:
    key = "ph_0123456789abcdefABCDEF-_xyz"
    try:
        raise ValueError(f"refused {key}")
    except ValueError:
        logger.exception("call with %s", key, extra={"headers": {"Authorization": "Bearer abc.def-ghi_jkl"}, key: key})

    text = log_file.read_text()

    assert "0123456789abcdef" not in text
    assert "abc.def" not in text
    (line,) = lines(log_file)
    assert line["event"] == "call with ph_[redacted]"
    assert line["headers"] == {"Authorization": "Bearer [redacted]"}


def test_redaction_leaves_ordinary_words_alone() -> None:
    line = b'{"event":"graph_partitioning of ph_x and the bearer of news"}'
    assert redact(line) == line


def test_other_libraries_are_heard_from_warnings_on(log_file: Path) -> None:
    logging.getLogger("httpx2").info("HTTP Request: GET ...")
    logging.getLogger("httpx2").warning("odd answer")
    logger.debug("detail")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old call", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(capture=False)

    assert [line["logger"] for line in lines(log_file)] == ["httpx2", "py.warnings"]


def test_the_file_is_the_owners_alone_and_appended_to(log_file: Path) -> None:
    logger.info("before")
    log_file.chmod(0o644)
    logs.configure("controller", path=log_file, level="DEBUG")
    logger.debug("after")

    assert stat.S_IMODE(log_file.stat().st_mode) == 0o600
    assert [line["event"] for line in lines(log_file)] == ["before", "after"]


def test_a_file_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(PilothouseError, match="No such file"):
        logs.configure("controller", path=tmp_path / "gone" / "controller.log")


def test_a_log_that_cannot_be_written_ends_nothing(log_file: Path) -> None:
    (handler,) = [handler for handler in logging.getLogger().handlers if isinstance(handler, logs._FdHandler)]
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, handler._fd)
    os.close(full)
    logger.info("lost")

    assert log_file.read_text() == ""


def test_text_for_people_is_printable(log_file: Path) -> None:
    logs.configure("supervisor", path=log_file, human=True)
    logger.warning("worker \x1b[31mdied\n", extra={"pid": 12})
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("restart failed")

    first, second, *trace = log_file.read_text().splitlines()

    assert first.endswith(r" WARNING supervisor: worker \x1b[31mdied\n pid=12")
    assert second.endswith(" ERROR   supervisor: restart failed")
    assert trace[-1] == "ValueError: why"


def test_stderr_that_is_no_terminal_gets_json(log_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker-0")
    logger.info("listening")
    sys.stderr.flush()

    assert json.loads(capfd.readouterr().err)["component"] == "worker-0"


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_225_599_999_999_999, "2025-12-31T23:59:59.999Z"),
        (1_767_225_600_001_000_000, "2026-01-01T00:00:00.001Z"),
    ],
)
def test_timestamps_are_utc_with_milliseconds(at: int, text: str) -> None:
    assert logs.timestamp(WallNs(at)) == text
