"""`pilothouse simulate ...`: run a fleet file in virtual time, and fit profiles to recorded runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import CommandError, data_console, json_text, message_console, say

if TYPE_CHECKING:
    from rich.table import Table

    from pilothouse.simulator.study import StudyResult, Variant

_Set = Annotated[tuple[str, ...], Parameter(name="--set", consume_multiple=False)]
_Sweep = Annotated[tuple[str, ...], Parameter(name="--sweep", consume_multiple=False)]
_Shown = Parameter(show_default=True)
_MOST_RUNS = 10_000


def simulate(
    scenario: Path | None = None,
    /,
    *,
    set_: _Set = (),
    sweep: _Sweep = (),
    seeds: Annotated[int, _Shown] = 1,
    jobs: Annotated[int, _Shown] = 1,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: bool = False,
    replay: Path | None = None,
) -> int:
    """Run a fleet file in virtual time, by the policies that serve it.

    $ pilothouse simulate fleet.yaml
    $ pilothouse simulate fleet.yaml --sweep simulate.replicas=2,4,8 --seeds 5 --jobs 2
    $ pilothouse simulate fleet.yaml --set simulate.workload.rate_per_s=20 --output report/
    $ pilothouse simulate --replay journal.jsonl

    The file's `simulate:` section says what arrives and how replicas are modelled; a fleet that serves ignores it.

    Args:
        scenario: The fleet file; ./fleet.yaml, else the built-in fleet, if left out.
        set_: KEY=VALUE to put over the file's own; may be repeated.
        sweep: KEY=A,B,C to run with each; several make every combination.
        seeds: How many seeds to run with, from simulate.seed on. Confidence intervals need two at least.
        jobs: In how many processes.
        output: A folder for report.json, report.html and, with the extra `simulator`, turns.parquet of the first run.
        json: Print the study as JSON.
        replay: A journal that a controller recorded (JSON lines), instead of a scenario: its events are given to the
            policies of this version, and what they answer otherwise is shown. It fails if anything is.
    """
    if replay is not None:
        return _replay(replay, json=json)
    if seeds < 1 or jobs < 1:
        raise CommandError("--seeds and --jobs have to be positive")
    variants = _variants(scenario, set_, sweep)
    if len(variants) * seeds > _MOST_RUNS:
        raise CommandError(f"that makes {len(variants) * seeds} runs; {_MOST_RUNS} at most")
    result = _study(variants, seeds, jobs)
    if output is not None:
        _write(result, variants[0], output)
    if json:
        print(json_text(result))
        return Exit.OK
    for name in result.estimates:
        say(f"warning: {name} is an estimate, no measurement of this GPU stands behind it")
    data_console().print(_table(result))
    return Exit.OK


def _replay(path: Path, *, json: bool) -> int:
    import msgspec

    from pilothouse.simulator.journal_replay import compare

    try:
        found = compare(path.read_bytes())
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise CommandError(f"{path} is not a journal: {error}") from error
    if json:
        print(json_text(found))
    else:
        for each in found.differences:
            print(f"{each.step}: {each.event}\n  recorded: {each.recorded}\n  now:      {each.now}")
        say(f"{found.steps} steps of {found.machines} replicas, {len(found.differences)} decided otherwise")
    return Exit.ERROR if found.differences else Exit.OK


def _variants(path: Path | None, settings: tuple[str, ...], sweeps: tuple[str, ...]) -> "list[Variant]":
    from pilothouse.cli.fleet_loading import overrides_of
    from pilothouse.config import fleet_file
    from pilothouse.simulator.scenario import Scenario, ScenarioInvalid
    from pilothouse.simulator.study import Variant, combinations

    fixed = overrides_of(settings)
    swept = {}
    for each in sweeps:
        key, equals, values = each.partition("=")
        if not equals or not key or not values:
            raise CommandError(f"--sweep {each}: expected KEY=A,B,C", hint="for example --sweep simulate.replicas=2,4")
        swept[key] = values.split(",")
    made = []
    for values_of in combinations(swept):
        loaded = fleet_file.load(path, overrides={**fixed, **values_of}, env=os.environ)
        try:
            made.append(Variant(values=values_of, scenario=Scenario.of(loaded)))
        except ScenarioInvalid as error:
            raise CommandError(str(error)) from error
    return made


def _study(variants: "list[Variant]", seeds: int, jobs: int) -> "StudyResult":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    import pilothouse
    from pilothouse.simulator.metrics import Slo
    from pilothouse.simulator.scenario import ScenarioInvalid, estimates_in
    from pilothouse.simulator.study import StudyResult, run_study
    from pilothouse.simulator.workloads.loaders import TraceInvalid

    section = variants[0].scenario.section
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = message_console()
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("simulating", total=len(variants) * seeds)
            found = run_study(variants, range(section.seed, section.seed + seeds), jobs, lambda: progress.advance(task))
        estimates = sorted({name for variant in variants for name in estimates_in(variant.scenario)})
    except (ScenarioInvalid, TraceInvalid, OSError) as error:
        raise CommandError(str(error)) from error
    return StudyResult(
        name=variants[0].scenario.name,
        pilothouse=pilothouse.__version__,
        slo=Slo(ttft_s=section.slo.ttft_s, tpot_s=section.slo.tpot_s),
        estimates=tuple(estimates),
        variants=found,
    )


def _write(result: "StudyResult", first: "Variant", folder: Path) -> None:
    from pilothouse.simulator.html_report import render
    from pilothouse.simulator.parquet import ParquetMissing, write_parquet
    from pilothouse.simulator.scenario import run

    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.joinpath("report.json").write_text(json_text(result) + "\n")
        folder.joinpath("report.html").write_text(render(result))
        write_parquet(run(first.scenario, result.variants[0].seeds[0]).records, folder / "turns.parquet")
    except ParquetMissing as error:
        say(f"note: no turns.parquet: {error}")
    except OSError as error:
        raise CommandError(f"{folder} cannot be written: {error.strerror}") from error
    say(f"written to {folder}/")


def _table(result: "StudyResult") -> "Table":
    from rich.table import Table

    from pilothouse.simulator.html_report import estimate_text, label

    table = Table(title=f"simulation of {result.name}", title_justify="left")
    table.add_column("")
    for variant in result.variants:
        table.add_column(label(variant), justify="right")
    runs = [variant.runs[0] for variant in result.variants]
    table.add_row("turns served", *(f"{run.served} of {run.turns}" for run in runs))
    for name in result.variants[0].summary:
        table.add_row(name, *(estimate_text(variant.summary[name]) for variant in result.variants))
    for fault in sorted({fault for run in runs for fault in run.faults}):
        table.add_row(fault, *(str(run.faults.get(fault, 0)) for run in runs))
    return table
