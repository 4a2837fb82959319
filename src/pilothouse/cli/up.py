"""`pilothouse up`: start a fleet, and keep it running."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def up(
    file: Path | None = None,
    /,
    *,
    detach: Annotated[bool, Parameter(alias="-d")] = False,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", consume_multiple=False)] = (),
) -> int:
    """Start a fleet: its gateway, its controller and its replicas.

    $ pilothouse up
    $ pilothouse up fleet.yaml
    $ pilothouse up --detach
    $ pilothouse up --set gateway.listen=127.0.0.1:9000

    When every replica is ready it prints the address, the API key and two examples that work as pasted. Then it keeps
    the fleet running until Ctrl-C, which lets running requests end; a second Ctrl-C does not wait for them. SIGHUP, or
    `pilothouse config reload`, has the fleet file read again.

    If the fleet cannot start, it says why, ends what it had started, and exits with 1. With --detach it exits with 0
    when the fleet is ready, and `pilothouse down` stops it.

    Args:
        file: The fleet file; ./fleet.yaml, else the built-in fleet, if left out.
        detach: Return when the fleet is ready, and leave it running.
        set_: KEY=VALUE to put over the file's own; may be repeated.
    """
    from pilothouse.cli.starting import prepare
    from pilothouse.cli.up_background import run_in_background
    from pilothouse.cli.up_foreground import run_in_foreground

    prepared = prepare(file, set_, os.environ)
    return (run_in_background if detach else run_in_foreground)(prepared, os.environ)
