"""`pilothouse down`: drain and stop a fleet, and see that nothing of it is left."""

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import say, working

if TYPE_CHECKING:
    from pilothouse.placement.processes import ProcessIdentity

_REPLICAS_S = 30.0  # what replicas may need to end, after the drain
_HURRY_S = 10.0


def down(
    *,
    timeout: float | None = None,
    fleet: Annotated[str | None, Parameter(env_var="PILOTHOUSE_FLEET")] = None,
) -> int:
    """Drain and stop the running fleet.

    $ pilothouse down
    $ pilothouse down --timeout 5
    $ pilothouse down --fleet staging

    Running requests get the time to end. Whatever of the fleet was left behind by an accident (a supervisor that was
    killed, say) is found by its records and ended too. It is no error if nothing runs.

    Args:
        timeout: Seconds until running requests are cut off; the fleet file's drain_timeout_s if left out.
        fleet: The fleet, if several are running.
    """
    from pilothouse.cli.fleet_record import is_alive, read_record, take_lock
    from pilothouse.cli.leftovers import end_leftovers, living_children, wait_gone
    from pilothouse.cli.locate import chosen_fleet

    paths = chosen_fleet(fleet, os.environ)
    name = paths.state_dir.name
    if not paths.state_dir.exists():
        say(f"{name} is not running")
        return Exit.OK
    record = read_record(paths.supervisor_record)
    patience = 0.0 if record is None else record.drain_timeout_s + _REPLICAS_S
    patience = patience if timeout is None else timeout
    ended = False
    with working(f"stopping {name}") as now:
        if record is not None and is_alive(record.process):
            ended = True
            _stop(record.process, patience, lambda: now("cutting off what still runs"))
        elif record is not None and (children := living_children(record)):
            ended = True
            wait_gone(children, patience)  # their lifeline has ended: they are about to end by themselves
        paths.create()
        lock = take_lock(paths.lock, paths.supervisor_record)  # nobody starts it while its leftovers are ended
        try:
            leftovers = end_leftovers(paths, record)
            paths.supervisor_record.unlink(missing_ok=True)
        finally:
            os.close(lock)
    if leftovers:
        say(f"ended what was left behind: {', '.join(leftovers)}")
    say(f"{name} is stopped" if ended or leftovers else f"{name} is not running")
    return Exit.OK


def _stop(supervisor: "ProcessIdentity", patience_s: float, on_hurry: Callable[[], None]) -> None:
    """Ask it to stop; when its time is over, not to wait any longer; and in the end, end it."""
    from pilothouse.cli.leftovers import send_signal, wait_gone

    send_signal(supervisor, signal.SIGTERM)
    if wait_gone([supervisor], patience_s):
        return
    on_hurry()
    send_signal(supervisor, signal.SIGTERM)
    if not wait_gone([supervisor], _HURRY_S):
        send_signal(supervisor, signal.SIGKILL)
        wait_gone([supervisor], _HURRY_S)
