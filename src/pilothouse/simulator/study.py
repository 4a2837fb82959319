"""A study: one scenario in several variants, each over several seeds, in as many processes as are wanted."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import msgspec

from pilothouse.simulator.metrics import Figures, Slo, figures
from pilothouse.simulator.scenario import Scenario, run

_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t for a two-sided 95% interval, by degrees of freedom from 1; 1.96 and a little beyond."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of swept values."""

    values: dict[str, str]
    scenario: Scenario


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over seeds, with half the width of its 95% confidence interval; `None` for one seed."""

    mean: float
    plus_minus: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Of one value from each seed."""
        count = len(values)
        mean = sum(values) / count
        if count == 1:
            return cls(mean=mean, plus_minus=None)
        variance = sum((value - mean) * (value - mean) for value in values) / (count - 1)
        t = _T95[count - 2] if count - 2 < len(_T95) else 2.1
        return cls(mean=mean, plus_minus=t * math.sqrt(variance / count))


class VariantResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of one variant gave, by seed."""

    values: dict[str, str]
    seeds: tuple[int, ...]
    runs: tuple[Figures, ...]
    summary: dict[str, Estimate]


class StudyResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole study, as it is written to JSON."""

    name: str
    pilothouse: str
    slo: Slo
    estimates: tuple[str, ...]
    """Profiles that no measurement stands behind."""
    variants: tuple[VariantResult, ...]


SUMMARY: Mapping[str, Callable[[Figures], float]] = {
    "ttft_p50_s": lambda run: run.ttft_s.p50,
    "ttft_p99_s": lambda run: run.ttft_s.p99,
    "token_gap_p50_s": lambda run: run.token_gap_s.p50,
    "token_gap_p99_s": lambda run: run.token_gap_s.p99,
    "latency_mean_s": lambda run: run.latency_s.mean,
    "slo_attainment": lambda run: run.slo_attainment,
    "output_tokens_per_s": lambda run: run.output_tokens_per_s,
    "utilisation": lambda run: run.utilisation,
    "cached_ratio": lambda run: run.cached_ratio,
    "cost": lambda run: run.cost,
}
"""The figures that are shown with confidence intervals."""


def combinations(sweeps: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Every combination of swept values; one that is empty without sweeps."""
    return [dict(zip(sweeps, values, strict=True)) for values in itertools.product(*sweeps.values())]


def run_study(
    variants: Sequence[Variant], seeds: Sequence[int], jobs: int, advance: Callable[[], object]
) -> tuple[VariantResult, ...]:
    """Run every variant with every seed. `advance` is called after each run, in any order; results are in order.

    Raises:
        ScenarioInvalid, OSError, TraceInvalid: a scenario cannot be run.
    """
    tasks = [(variant.scenario, seed) for variant in variants for seed in seeds]
    found: list[Figures | None] = [None] * len(tasks)
    if jobs == 1 or len(tasks) == 1:
        for index, task in enumerate(tasks):
            found[index] = run_one(*task)
            advance()
    else:
        with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=get_context("spawn")) as pool:
            waiting = {pool.submit(run_one, *task): index for index, task in enumerate(tasks)}
            for done in as_completed(waiting):
                found[waiting[done]] = done.result()
                advance()
    runs = [each for each in found if each is not None]
    return tuple(
        _result(variant, seeds, runs[index * len(seeds) : (index + 1) * len(seeds)])
        for index, variant in enumerate(variants)
    )


def run_one(scenario: Scenario, seed: int) -> Figures:
    """One run's figures; what a process of a study does."""
    slo = scenario.section.slo
    return figures(run(scenario, seed), Slo(ttft_s=slo.ttft_s, tpot_s=slo.tpot_s))


def _result(variant: Variant, seeds: Sequence[int], runs: Sequence[Figures]) -> VariantResult:
    return VariantResult(
        values=variant.values,
        seeds=tuple(seeds),
        runs=tuple(runs),
        summary={name: Estimate.of([figure(run) for run in runs]) for name, figure in SUMMARY.items()},
    )
