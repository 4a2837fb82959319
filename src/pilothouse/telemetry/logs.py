"""Logs of the supervisor, the controller and the workers: one JSON object a line, or text for a terminal.

Code logs with the standard library: `logger.info("replica started", extra={"replica": replica.id})`. The message is
the event, what varies goes into `extra`. Prompts, answers, keys and tokens are never logged.

What workers tell of every request goes through `event_log.py`, which costs a fraction of a line here.
"""

import logging
import os
import stat
import time
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.model.units import SECOND, WallNs
from pilothouse.telemetry.redaction import redact

MAX_EXCEPTION_CHARS = 16 * 1024  # the end of a traceback says what happened; a recursion's would be megabytes

# What every record has, and uvicorn's coloured copy of the message: the rest of a record is the caller's `extra`.
_NOT_EXTRA = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}

_OWN_LOGGERS = "pilothouse"


def timestamp(at: WallNs) -> str:
    """RFC 3339 in UTC with milliseconds: 2026-01-31T23:59:59.123Z."""
    seconds, rest = divmod(at, SECOND)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1_000_000:03}Z"


def configure(component: str, *, path: Path | None = None, level: str = "INFO", human: bool | None = None) -> None:
    """Send the logs of this process to `path` (appended to, mode 0600), or to stderr.

    `component` is what this process is: supervisor, controller, worker-0. `human` asks for text instead of JSON; by
    default that is so when stderr is a terminal. Other libraries are heard from WARNING on. Calling it again replaces
    what the call before set up. Raises PilothouseError `state_unreadable` if the file cannot be opened.
    """
    fd = 2 if path is None else _open(path)
    as_text = human if human is not None else path is None and os.isatty(fd)
    handler = _FdHandler(fd, owned=path is not None)
    handler.setFormatter(TextFormatter(component) if as_text else JsonFormatter(component))
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old, _FdHandler):
            root.removeHandler(old)
            old.close()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(_OWN_LOGGERS).setLevel(level)
    logging.captureWarnings(capture=True)


class JsonFormatter(logging.Formatter):
    """ts, level, component, event, logger, the caller's fields, and the exception if there is one, as one line."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object, without the line's end. Never raises for what the caller passed."""
        line: dict[str, Any] = {
            "ts": timestamp(WallNs(int(record.created * SECOND))),
            "level": record.levelname.lower(),
            "component": self._component,
            "event": _message(record),
            "logger": record.name,
        }
        for name, value in _extra(record).items():
            line.setdefault(name, value)
        exception = _exception(self, record)
        if exception is not None:
            line["exception"] = exception
        return _encode(line)


class TextFormatter(logging.Formatter):
    """The same for people: time, level, event, the fields as name=value; a traceback below."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """One line, or more with a traceback, without the last line's end."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f" {name}={value}" for name, value in _extra(record).items())
        line = _printable(f"{clock} {record.levelname:<7} {self._component}: {_message(record)}{fields}")
        exception = _exception(self, record)
        return line if exception is None else f"{line}\n{exception}"


class _FdHandler(logging.Handler):
    """Writes each line with one call, so that lines of several processes do not mix."""

    def __init__(self, fd: int, *, owned: bool) -> None:
        super().__init__()
        self._fd = fd
        self._owned = owned

    def emit(self, record: logging.LogRecord) -> None:
        try:
            os.write(self._fd, redact(self.format(record).encode("utf-8", "backslashreplace")) + b"\n")
        except OSError:
            pass  # a full disk or a closed pipe must not end what wanted to log

    def close(self) -> None:
        if self._owned:
            self._owned = False
            os.close(self._fd)
        super().close()


def _open(path: Path) -> int:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PilothouseError("state_unreadable", f"{path}: {error.strerror}") from error
    if stat.S_IMODE(os.fstat(fd).st_mode) & 0o077:
        os.fchmod(fd, 0o600)
    return fd


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        return str(record.msg)  # arguments that do not fit the message: say what can be said


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _NOT_EXTRA}


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    if record.exc_info is None or record.exc_info[0] is None:
        return None
    return formatter.formatException(record.exc_info)[-MAX_EXCEPTION_CHARS:]


def _encode(line: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=str).decode()
    except Exception:  # a lone surrogate, a key that is no text, a str() that fails: the line still has to come out
        return msgspec.json.encode({name: ascii(value) for name, value in line.items()}).decode()


def _printable(text: str) -> str:
    """Control characters as escapes: what is logged cannot steer the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
