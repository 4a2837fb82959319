"""`pilothouse status`: what the fleet and each of its replicas are doing."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import data_console, json_text, printable
from pilothouse.model.fleet import ReplicaState
from pilothouse.model.posture import Outcome
from pilothouse.model.status import FleetStatus, ReplicaStatus

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_COLOURS = {ReplicaState.READY: "green", ReplicaState.FAILED: "red", ReplicaState.STOPPED: "dim"}


def status(*, json: bool = False, fleet: Annotated[str | None, Parameter(env_var="PILOTHOUSE_FLEET")] = None) -> int:
    """Show what each replica of the running fleet is doing.

    $ pilothouse status
    $ pilothouse status --json | jq '.replicas[] | {id, state}'

    `busy` are requests under way by the gateway's own count, `waiting` those in the engine's queue, `KV` the share of
    its cache in use.

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
    console.print(replica_table(found.replicas))
    for line in details(found):
        print(line)
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
    denied = [str(each.deployment) for each in found.postures if each.outcome is Outcome.DENIED]
    quarantined = f", quarantined: {', '.join(denied)}" if denied else ""
    state = (
        Text("ready", "green")
        if found.ready
        else Text(f"{ready} of {len(found.replicas)} replicas ready{quarantined}", "yellow")
    )
    workers = f"{len(found.workers)} worker{'' if len(found.workers) == 1 else 's'}"
    return Text.assemble(
        Text(f"fleet {found.fleet}", "bold"), ": ", state, "\n",
        f"gateway {found.gateway} ({workers}), admin {found.admin}, file {found.fleet_file or 'built-in'}",
    )  # fmt: skip


def replica_table(replicas: Sequence[ReplicaStatus]) -> "Table":
    """One line for each replica. What an engine does not tell is left empty."""
    from rich.table import Table
    from rich.text import Text

    shown = Table("replica", "model", "state", box=None, pad_edge=False, header_style="bold")
    for name in ("up", "restarts", "busy", "waiting", "KV", "pid"):
        shown.add_column(name, justify="right")
    for each in replicas:
        state = Text(each.state, style=_COLOURS.get(each.state, "yellow"))
        shown.add_row(each.id, each.model, state, *_figures(each))
    return shown


def details(found: FleetStatus) -> Iterator[str]:
    """What advisories take away, why replicas are not ready, and the last words of those that failed."""
    for posture in found.postures:
        if posture.outcome in (Outcome.DENIED, Outcome.ALLOWED_WITHOUT):
            yield f"\nposture of {posture.deployment}: {printable(posture.headline)}"
            yield from (f"  {printable(reason)}" for reason in posture.reasons)
    for each in found.replicas:
        if each.state is not ReplicaState.READY and each.detail:
            yield f"\n{each.id}: {printable(each.detail)}"
            if each.state is ReplicaState.FAILED:
                yield from (f"  {printable(line)}" for line in each.log_tail)


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
