"""What the replicas are doing while a fleet starts: a live table in a terminal, a line for each change elsewhere."""

import contextlib
from collections.abc import Callable, Iterator

from pilothouse.cli.output import message_console, printable, say
from pilothouse.model.ids import ReplicaId
from pilothouse.model.status import FleetStatus


@contextlib.contextmanager
def start_display() -> Iterator[Callable[[FleetStatus], None]]:
    """Show what the function is told until the block is left; a live table is gone then."""
    console = message_console()
    if not console.is_terminal:
        yield _lines()
        return
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.table import Table

    spinner = Spinner("dots", "starting")
    with Live(spinner, console=console, transient=True, refresh_per_second=10) as live:

        def show(status: FleetStatus) -> None:
            table = Table(box=None, pad_edge=False, show_header=False)
            for replica in status.replicas:
                table.add_row(replica.id, replica.state, printable(replica.detail))
            live.update(table)

        yield show


def _lines() -> Callable[[FleetStatus], None]:
    told: dict[ReplicaId, str] = {}

    def show(status: FleetStatus) -> None:
        for replica in status.replicas:
            line = f"{replica.id}: {replica.state}" + (f", {printable(replica.detail)}" if replica.detail else "")
            if told.get(replica.id) != line:
                told[replica.id] = line
                say(line)

    return show
