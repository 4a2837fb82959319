"""`pilothouse down`: drain and stop a fleet, and see that nothing of it is left."""

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import message_console, say

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
    from pilothouse.cli.fleet_record import is_alive, read_record
    from pilothouse.cli.leftovers import end_leftovers, living_children, wait_gone
    from pilothouse.cli.locate import chosen_fleet

    paths = chosen_fleet(fleet, os.environ)
    name = paths.state_dir.name
    record = read_record(paths.supervisor_record)
    ran = False
    with message_console().status(f"stopping {name}: waiting for running requests") as shown:
        if record is not None:
            patience = record.drain_timeout_s + _REPLICAS_S if timeout is None else timeout
            if is_alive(record.process):
                ran = True
                _stop(record.process, patience, lambda: shown.update(f"stopping {name}: cutting off what still runs"))
            elif children := living_children(record):
                ran = True
                wait_gone(children, patience)  # their lifeline has ended: they are about to end by themselves
        shown.update(f"stopping {name}: looking for leftovers")
        ended = end_leftovers(paths, record)
        paths.supervisor_record.unlink(missing_ok=True)
    if ended:
        say(f"ended what was left behind: {', '.join(ended)}")
    say(f"{name} is stopped" if ran or ended else f"{name} is not running")
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
