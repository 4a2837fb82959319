"""`pilothouse restart`: replace the gateway's workers without losing a request."""

import os
import signal
import time
from typing import Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import CommandError, say, working

_POLL_S = 0.05
_MARGIN_S = 30.0  # to get ready, and to end after the drain


def restart(*, fleet: Annotated[str | None, Parameter(env_var="PILOTHOUSE_FLEET")] = None) -> int:
    """Replace the gateway's workers without losing a request.

    $ pilothouse restart
    $ pilothouse restart --fleet staging

    The fleet file is read again for `gateway.workers` and `gateway.limits`. New workers take the sockets; when all of
    them serve, the old ones finish the answers they are giving, for up to drain_timeout_s. Replicas are not touched.
    If the new workers do not get ready, the old ones serve on, and the exit code is 1.

    Args:
        fleet: The fleet, if several are running.
    """
    from pilothouse.cli.fleet_record import read_record
    from pilothouse.cli.leftovers import send_signal
    from pilothouse.cli.locate import chosen_fleet, require_running

    paths = chosen_fleet(fleet, os.environ)
    record = require_running(paths)
    send_signal(record.process, signal.SIGUSR1)
    give_up = time.monotonic() + record.drain_timeout_s + _MARGIN_S
    with working("replacing the workers"):
        while True:
            now = read_record(paths.supervisor_record)
            if now is not None and now.restart.number > record.restart.number and not now.restart.running:
                break
            if time.monotonic() > give_up:
                raise CommandError(
                    "the workers are still being replaced", hint="`pilothouse logs supervisor` tells more"
                )
            time.sleep(_POLL_S)
    if now.restart.problem:
        raise CommandError(f"the workers were not replaced: {now.restart.problem}")
    say(f"{len([each for each in now.children if each.name.startswith('worker-')])} new workers serve")
    return Exit.OK
