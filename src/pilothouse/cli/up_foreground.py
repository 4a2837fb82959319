"""`pilothouse up` in a terminal: the supervisor runs in this process."""

import asyncio
import logging
from collections.abc import Mapping

from pilothouse.cli import child
from pilothouse.cli.exits import Exit
from pilothouse.cli.fleet_supervisor import supervise
from pilothouse.cli.output import say
from pilothouse.cli.readiness import wait_until_ready
from pilothouse.cli.start_display import start_display
from pilothouse.cli.starting import PreparedFleet
from pilothouse.telemetry import logs


def run_in_foreground(fleet: PreparedFleet, env: Mapping[str, str]) -> int:
    """Run the fleet until it is asked to stop. Stopped before it was ready, it was interrupted.

    Raises:
        PilothouseError: it could not start; nothing of it is left.
    """
    was_ready = False

    async def announce() -> None:
        nonlocal was_ready
        with start_display() as show:
            await wait_until_ready(fleet.paths, fleet.boot.spec.workers, started=lambda: True, show=show)
        was_ready = True
        print(fleet.welcome, flush=True)
        say("\nCtrl-C stops the fleet")

    logs.configure("supervisor", path=fleet.paths.logs_dir / "supervisor.log")
    notices = _Notices()
    supervisor_log = logging.getLogger("pilothouse.cli")
    supervisor_log.addHandler(notices)
    try:
        asyncio.run(supervise(fleet.boot, fleet.paths, env, announce))
    finally:
        supervisor_log.removeHandler(notices)
    if was_ready:
        say("stopped")
    return Exit.OK if was_ready else Exit.INTERRUPTED


class _Notices(logging.Handler):
    """What the supervisor logs, said in the terminal too, but for children that end as they should."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING and record.name == child.__name__:
            return
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        say(f"{mark}{record.getMessage()}")
