"""One log file for each replica, which its process writes without us in between."""

import datetime as dt
import os
import re
from pathlib import Path

from pilothouse.model.ids import ReplicaId

_ROTATE_ABOVE_BYTES = 16 * 1024 * 1024
_TAIL_BYTES = 64 * 1024
_RUN_HEADER = "=== "
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
"""Terminal sequences and control characters: an engine's output must not steer the operator's terminal."""


def log_path(directory: Path, replica: ReplicaId) -> Path:
    """Where a replica's log is; the one before it has `.1` at the end."""
    return directory / f"{replica}.log"


def open_log(path: Path, replica: ReplicaId) -> int:
    """A descriptor to append a new run to, mode 0600. A large log is first put aside; it replaces the last such."""
    try:
        if path.stat().st_size > _ROTATE_ABOVE_BYTES:
            path.replace(path.with_name(path.name + ".1"))
    except FileNotFoundError:
        pass
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    os.write(descriptor, f"{_RUN_HEADER}{now} {replica} starts\n".encode())
    return descriptor


def tail(path: Path, lines: int) -> tuple[str, ...]:
    """The last lines of the latest run, without terminal sequences; empty when there are none."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES)
            file.seek(start)
            if start > 0:
                file.readline()  # the window begins within a line
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ()
    found = text.splitlines()
    starts = [index for index, line in enumerate(found) if line.startswith(_RUN_HEADER)]
    of_latest_run = found[starts[-1] + 1 :] if starts else found
    return tuple(_CONTROL.sub("", line) for line in of_latest_run[-lines:]) if lines > 0 else ()
