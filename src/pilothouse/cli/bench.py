"""`pilothouse bench`: load a running fleet and say how it did."""

import os
import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import CommandError, data_console, json_text, message_console, say

if TYPE_CHECKING:
    from pilothouse.cli.bench_client import Outcome
    from pilothouse.cli.bench_load import Load
    from pilothouse.cli.target import Target

_DEFAULT_REQUESTS = 50

_Shown = Parameter(show_default=True)


def bench(
    *,
    requests: int | None = None,
    duration: float | None = None,
    concurrency: Annotated[int, _Shown] = 4,
    prompt_tokens: Annotated[int, _Shown] = 128,
    max_tokens: Annotated[int, _Shown] = 64,
    stream: Annotated[bool, Parameter(negative="--no-stream")] = True,
    warm_up: int | None = None,
    seed: Annotated[int, _Shown] = 0,
    model: str | None = None,
    url: str | None = None,
    fleet: Annotated[str | None, Parameter(env_var="PILOTHOUSE_FLEET")] = None,
    json: bool = False,
) -> int:
    """Load a running fleet and report latencies, throughput and errors.

    $ pilothouse bench
    $ pilothouse bench --concurrency 16 --duration 30
    $ pilothouse bench --requests 200 --prompt-tokens 1000 --max-tokens 16 --json > run.json
    $ pilothouse bench --no-stream --url http://10.0.0.7:8080/v1

    It is a closed loop: as many clients as --concurrency says, each of which asks again when it has its answer. A run
    with the same seed sends the same prompts. It fails only if every request did.

    Args:
        requests: How many requests to measure; 50 if neither this nor --duration is given.
        duration: For how many seconds to start new requests, instead of a number of them.
        concurrency: How many clients ask at the same time.
        prompt_tokens: About how long prompts are.
        max_tokens: The most tokens an answer may have.
        stream: Stream the answers. Without streaming there is no time to first token.
        warm_up: Requests that are sent before and not measured; as many as --concurrency if left out.
        seed: What prompts are drawn from.
        model: The model's public name; the first one that the fleet has if left out.
        url: Another data plane than the running fleet's. The stored key is sent there only with --fleet.
        fleet: The fleet, if several are running.
        json: Print the report as JSON; times are in milliseconds.
    """
    from pilothouse.cli import bench_report
    from pilothouse.cli.bench_load import Load
    from pilothouse.cli.chat_session import ChatSession
    from pilothouse.cli.locate import data_plane

    if requests is not None and duration is not None:
        raise CommandError("--requests and --duration exclude each other")
    if concurrency < 1 or (requests is not None and requests < 1) or (duration is not None and duration <= 0):
        raise CommandError("--concurrency, --requests and --duration have to be positive")
    target = data_plane(url, fleet, os.environ)
    with ChatSession(target, model=model, system=None) as session:
        model = session.model
    load = Load(
        model=model,
        requests=None if duration is not None else requests or _DEFAULT_REQUESTS,
        duration_s=duration,
        concurrency=concurrency,
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        stream=stream,
        seed=seed,
    )
    outcomes, cpu_s = _run(target, load, concurrency if warm_up is None else warm_up)
    found = bench_report.report(
        outcomes, model=model, url=target.url, concurrency=concurrency, stream=stream, cpu_s=cpu_s
    )
    if json:
        print(json_text(found))
    else:
        print("\n".join(bench_report.summary(found)) + "\n")
        data_console().print(bench_report.table(found))
    if found.client_cpu_ratio > bench_report.BUSY_CLIENT_RATIO:
        say("warning: this client was busy itself; use fewer clients, or run it on another machine")
    return Exit.ERROR if found.failed == found.requests else Exit.OK


def _run(target: "Target", load: "Load", warm_up: int) -> tuple[list["Outcome"], float]:
    """The measured outcomes, and the processor time that they took here."""
    import msgspec
    import uvloop
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from pilothouse.cli.bench_load import run_load

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = message_console()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal, refresh_per_second=4
    ) as progress:
        if warm_up > 0:
            warming = progress.add_task("warming up", total=warm_up)
            # Other prompts than the measured ones, which must not find their own prefixes in a cache.
            first = msgspec.structs.replace(load, requests=warm_up, duration_s=None, seed=load.seed + 1)
            uvloop.run(run_load(target, first, lambda _: progress.advance(warming)))
            progress.remove_task(warming)
        measuring = progress.add_task("measuring", total=load.requests)
        cpu_before = time.process_time()
        outcomes = uvloop.run(run_load(target, load, lambda _: progress.advance(measuring)))
        return outcomes, time.process_time() - cpu_before
