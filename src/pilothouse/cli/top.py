"""`pilothouse top`: what the fleet is doing right now, in a terminal that keeps itself up to date."""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import data_console

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilothouse.cli.activity import Activity

_LEAST_INTERVAL_S = 0.2


def top(
    *,
    interval: float = 1.0,
    once: bool = False,
    json: bool = False,
    fleet: Annotated[str | None, Parameter(env_var="PILOTHOUSE_FLEET")] = None,
) -> int:
    """Show what the running fleet is doing right now: requests, tokens, latencies, replicas.

    $ pilothouse top
    $ pilothouse top --once
    $ pilothouse top --json --interval 5 | jq '.models[].requests_per_s'

    Rates and quantiles are of the last interval. `first token` and `per token` are of streams, and quantiles are
    estimated within the buckets of the metrics' histograms. Ctrl-C ends it.

    Args:
        interval: Seconds from one reading to the next.
        once: Show one reading, after one interval, and end.
        json: One JSON object a reading, on a line of its own.
        fleet: The fleet, if several are running.
    """
    interval = max(interval, _LEAST_INTERVAL_S)
    with contextlib.suppress(KeyboardInterrupt), _display(json=json, live=not once and not json) as show:
        asyncio.run(_follow(fleet, interval, once=once, show=show))
    return Exit.OK


async def _follow(fleet: str | None, interval_s: float, *, once: bool, show: "Callable[[Activity], None]") -> None:
    from pilothouse.cli.activity import between
    from pilothouse.cli.admin_client import AdminClient
    from pilothouse.cli.locate import chosen_fleet, require_running
    from pilothouse.telemetry.board import read_boards

    paths = chosen_fleet(fleet, os.environ)
    async with AdminClient(paths, require_running(paths)) as admin:
        before, at = read_boards(paths.board_dir), time.monotonic()
        while True:
            await asyncio.sleep(interval_s)
            status = await admin.status()
            after, now = read_boards(paths.board_dir), time.monotonic()
            show(between(before, after, now - at, status))
            if once:
                return
            before, at = after, now


@contextlib.contextmanager
def _display(*, json: bool, live: bool) -> "Iterator[Callable[[Activity], None]]":
    import msgspec

    if json:
        yield lambda activity: print(msgspec.json.encode(activity).decode(), flush=True)
        return
    from pilothouse.cli.top_view import view

    console = data_console()
    if not live or not console.is_terminal:
        yield lambda activity: console.print(view(activity))
        return
    from rich.live import Live

    with Live(console=console, screen=True, auto_refresh=False) as shown:
        yield lambda activity: shown.update(view(activity), refresh=True)
