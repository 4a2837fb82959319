"""`pilothouse status`: what the fleet and each of its replicas are doing."""

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import data_console, json_text, printable
from pilothouse.model.fleet import ReplicaState
from pilothouse.model.status import FleetStatus, ReplicaStatus

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_COLOURS = {ReplicaState.READY: "green", ReplicaState.FAILED: "red", ReplicaState.STOPPED: "dim"}


def status(*, json: bool = False, fleet: Annotated[str | None, Parameter(env_var="PILOTHOUSE_FLEET")] = None) -> int:
    """Show what each replica of the running fleet is doing.

    $ pilothouse status
    $ pilothouse status --json | jq '.replicas[] | {id, state}'

    It fails when the fleet does not run or its controller does not answer.

    Args:
        json: Everything the controller knows, as JSON (the answer of GET /v1/fleet).
        fleet: The fleet, if several are running.
    """
    found = asyncio.run(_ask(fleet))
    if json:
        print(json_text(found))
        return Exit.OK
    console = data_console()
    console.print(headline(found))
    console.print()
    console.print(table(found))
    for replica in found.replicas:
        if replica.state is ReplicaState.FAILED and replica.log_tail:
            print(f"\nlast lines of {replica.id}:")
            print("\n".join(f"  {printable(line)}" for line in replica.log_tail))
    return Exit.OK


async def _ask(fleet: str | None) -> FleetStatus:
    from pilothouse.cli.admin_client import AdminClient
    from pilothouse.cli.locate import chosen_fleet, require_running

    paths = chosen_fleet(fleet, os.environ)
    async with AdminClient(paths, require_running(paths)) as admin:
        return await admin.status()


def headline(found: FleetStatus) -> "Text":
    """The fleet in a few lines."""
    from rich.text import Text

    ready = sum(replica.state is ReplicaState.READY for replica in found.replicas)
    state = (
        Text("ready", "green") if found.ready else Text(f"{ready} of {len(found.replicas)} replicas ready", "yellow")
    )
    workers = f"{len(found.workers)} worker{'' if len(found.workers) == 1 else 's'}"
    return Text.assemble(
        Text(f"fleet {found.fleet}", "bold"), ": ", state, "\n",
        f"gateway {found.gateway} ({workers}), admin {found.admin}, file {found.fleet_file or 'built-in'}",
    )  # fmt: skip


def table(found: FleetStatus) -> "Table":
    """One line for each replica. What an engine does not tell is left empty."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        "replica", "model", "engine", "state", "up", "restarts", "in flight", "waiting", "KV use", "pid", "detail",
        box=None, pad_edge=False, header_style="bold",
    )  # fmt: skip
    for name in ("up", "restarts", "in flight", "waiting", "KV use", "pid"):
        next(column for column in shown.columns if column.header == name).justify = "right"
    for each in found.replicas:
        state = Text(each.state, style=_COLOURS.get(each.state, "yellow"))
        shown.add_row(each.id, each.model, each.engine, state, *_figures(each), Text(printable(each.detail)))
    return shown


def _figures(replica: ReplicaStatus) -> tuple[str, ...]:
    return (
        "" if replica.uptime_s is None else duration(replica.uptime_s),
        str(replica.restarts),
        str(replica.in_flight),
        "" if replica.requests_waiting is None else f"{replica.requests_waiting:.0f}",
        "" if replica.kv_usage_ratio is None else f"{replica.kv_usage_ratio:.0%}",
        "" if replica.pid is None else str(replica.pid),
    )


def duration(seconds: float) -> str:
    """Two units at most, as people say it: 42s, 3m07s, 5h12m, 9d04h."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"
