"""`pilothouse logs`: what a replica, the controller, a worker or the supervisor wrote."""

import difflib
import os
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import printable
from pilothouse.model.errors import PilothouseError

_POLL_S = 0.2


def logs(
    name: str,
    /,
    *,
    follow: Annotated[bool, Parameter(alias="-f")] = False,
    lines: Annotated[int, Parameter(alias="-n", show_default=True)] = 100,
    fleet: Annotated[str | None, Parameter(env_var="PILOTHOUSE_FLEET")] = None,
) -> int:
    """Show the log of a replica, or of the fleet's own processes.

    $ pilothouse logs smollm2-llamacpp-0
    $ pilothouse logs -f controller
    $ pilothouse logs --lines 20 worker-0
    $ pilothouse logs supervisor

    Logs can be read after the fleet was stopped, too.

    Args:
        name: A replica's name as `status` shows it, `controller`, `worker-0` (and so on), or `supervisor`.
        follow: Go on with what is written from now on, until Ctrl-C.
        lines: How many of the last lines to show first.
        fleet: The fleet, if several are running.
    """
    from pilothouse.cli.locate import chosen_fleet
    from pilothouse.cli.log_reader import LogReader

    with LogReader(log_file(chosen_fleet(fleet, os.environ).logs_dir, name)) as reader:
        _show(reader.last(lines))
        if not follow:
            _show([rest] if (rest := reader.unfinished()) else [])
            return Exit.OK
        while True:
            sys.stdout.flush()
            time.sleep(_POLL_S)
            _show(reader.read())


def log_file(directory: Path, name: str) -> Path:
    """The log of that name.

    Raises:
        PilothouseError: replica_not_found, with the names that there are.
    """
    known = sorted(path.stem for path in directory.glob("*.log")) if directory.is_dir() else []
    if name in known:
        return directory / f"{name}.log"
    near = difflib.get_close_matches(name, known, n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    hint = f"there are logs of {', '.join(known)}" if known else "this fleet has not been started yet"
    raise PilothouseError("replica_not_found", f"there is no log of {name!r}{meant}", hint=hint)


def _show(lines: list[str]) -> None:
    clean = printable if sys.stdout.isatty() else str
    for line in lines:
        print(clean(line))
