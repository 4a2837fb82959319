"""What a run was like, in figures."""

from collections.abc import Sequence

import msgspec

from pilothouse.model.units import SECOND
from pilothouse.simulator.fleet import Outcome
from pilothouse.simulator.turn import NEVER

WINDOWS = 60
"""Points of a time line."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and percentiles (linear between ranks) of a quantity, in its own unit."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of any values; zeros for none."""
        if not values:
            return cls(mean=0.0, p50=0.0, p90=0.0, p95=0.0, p99=0.0)
        ordered = sorted(values)
        p50, p90, p95, p99 = (percentile(ordered, ratio) for ratio in (0.5, 0.9, 0.95, 0.99))
        return cls(mean=sum(ordered) / len(ordered), p50=p50, p90=p90, p95=p95, p99=p99)


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """What counts as good: both bounds are kept."""

    ttft_s: float
    tpot_s: float


class TenantFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's part."""

    tenant: str
    turns: int
    served: int
    tokens: int
    ttft_s: Spread
    tpot_s: Spread
    slo_attainment: float


class ReplicaFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's part. `utilisation` is the share of its time in which it computed, for pipelines per stage."""

    replica: str
    pool: str
    turns: int
    utilisation: float
    output_tokens: int
    prefill_tokens: int
    preemptions: int
    cost: float


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the time: what arrived in it, and the mean number of turns that waited or ran."""

    start_s: float
    arrived: int
    ttft_p50_s: float
    ttft_p99_s: float
    waiting: float
    running: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. Seconds, tokens, ratios; cost in the currency of the prices."""

    turns: int
    served: int
    faults: dict[str, int]
    duration_s: float
    ttft_s: Spread
    tpot_s: Spread
    latency_s: Spread
    queue_s: Spread
    token_gap_s: Spread
    slo_attainment: float
    """Of all turns, refused ones too."""
    output_tokens_per_s: float
    tokens_per_s: float
    cached_ratio: float
    """Of the prompt tokens of served turns."""
    preemptions: int
    utilisation: float
    gpu_hours: float
    cost: float
    cost_per_million_output_tokens: float
    tenants: tuple[TenantFigures, ...]
    replicas: tuple[ReplicaFigures, ...]
    windows: tuple[Window, ...]


def percentile(ordered: Sequence[float], ratio: float) -> float:
    """Of ascending values, linear between ranks."""
    at = (len(ordered) - 1) * ratio
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def figures(outcome: Outcome, slo: Slo) -> Figures:
    """The figures of a run."""
    records, columns = outcome.records, outcome.records.columns
    arrival, first, finished = columns["arrival_ns"], columns["first_ns"], columns["finished_ns"]
    prompt, output = columns["prompt"], columns["output"]
    rows = records.served()
    ttft = [(first[row] - arrival[row]) / SECOND for row in rows]
    tpot = [(finished[row] - first[row]) / SECOND / max(output[row] - 1, 1) for row in rows]
    good = [t <= slo.ttft_s and p <= slo.tpot_s for t, p in zip(ttft, tpot, strict=True)]
    duration_s = max(outcome.ended_ns, 1) / SECOND
    faults: dict[str, int] = {}
    for fault in records.fault:
        if fault:
            faults[records.faults[fault]] = faults.get(records.faults[fault], 0) + 1
    made = sum(output[row] for row in rows)
    read = sum(prompt[row] for row in rows)
    gaps = outcome.gaps()
    replicas = _replicas(outcome)
    cost = sum(each.cost for each in replicas)
    return Figures(
        turns=len(records),
        served=len(rows),
        faults=faults,
        duration_s=duration_s,
        ttft_s=Spread.of(ttft),
        tpot_s=Spread.of([value for value, row in zip(tpot, rows, strict=True) if output[row] > 1]),
        latency_s=Spread.of([(finished[row] - arrival[row]) / SECOND for row in rows]),
        queue_s=Spread.of([(columns["scheduled_ns"][row] - arrival[row]) / SECOND for row in rows]),
        token_gap_s=Spread(
            mean=gaps.mean_ns() / SECOND,
            p50=gaps.percentile_ns(0.5) / SECOND,
            p90=gaps.percentile_ns(0.9) / SECOND,
            p95=gaps.percentile_ns(0.95) / SECOND,
            p99=gaps.percentile_ns(0.99) / SECOND,
        ),
        slo_attainment=sum(good) / len(records) if len(records) else 0.0,
        output_tokens_per_s=made / duration_s,
        tokens_per_s=(made + read) / duration_s,
        cached_ratio=sum(columns["cached_tokens"][row] for row in rows) / read if read else 0.0,
        preemptions=sum(columns["preemptions"]),
        utilisation=sum(each.utilisation for each in replicas) / len(replicas) if replicas else 0.0,
        gpu_hours=sum(replica.gpus for replica in outcome.replicas) * duration_s / 3600,
        cost=cost,
        cost_per_million_output_tokens=cost / made * 1e6 if made else 0.0,
        tenants=_tenants(outcome, rows, ttft, tpot, good),
        replicas=replicas,
        windows=_windows(outcome, rows, ttft),
    )


def _tenants(
    outcome: Outcome, rows: Sequence[int], ttft: Sequence[float], tpot: Sequence[float], good: Sequence[bool]
) -> tuple[TenantFigures, ...]:
    records, columns = outcome.records, outcome.records.columns
    if len(records.tenants) < 2:
        return ()
    turns = [0] * len(records.tenants)
    for tenant in records.tenant:
        turns[tenant] += 1
    places: list[list[int]] = [[] for _ in records.tenants]
    for place, row in enumerate(rows):
        places[records.tenant[row]].append(place)
    return tuple(
        TenantFigures(
            tenant=records.tenants[tenant],
            turns=turns[tenant],
            served=len(own),
            tokens=sum(columns["prompt"][rows[place]] + columns["output"][rows[place]] for place in own),
            ttft_s=Spread.of([ttft[place] for place in own]),
            tpot_s=Spread.of([tpot[place] for place in own]),
            slo_attainment=sum(good[place] for place in own) / turns[tenant],
        )
        for tenant, own in sorted(enumerate(places), key=lambda each: records.tenants[each[0]])
    )


def _replicas(outcome: Outcome) -> tuple[ReplicaFigures, ...]:
    turns = [0] * len(outcome.replicas)
    for replica in outcome.records.columns["replica"]:
        if replica != NEVER:
            turns[replica] += 1
    ended = max(outcome.ended_ns, 1)
    return tuple(
        ReplicaFigures(
            replica=each.name,
            pool=each.pool,
            turns=turns[index],
            utilisation=each.engine.busy_ns / ended / getattr(each.engine, "stages", 1),
            output_tokens=each.engine.output_tokens,
            prefill_tokens=each.engine.prefill_tokens,
            preemptions=each.engine.preemptions,
            cost=each.price_per_hour * ended / SECOND / 3600,
        )
        for index, each in enumerate(outcome.replicas)
    )


def _windows(outcome: Outcome, rows: Sequence[int], ttft: Sequence[float]) -> tuple[Window, ...]:
    """The time line, over as many windows of one length."""
    columns = outcome.records.columns
    arrival, first, finished = columns["arrival_ns"], columns["first_ns"], columns["finished_ns"]
    length = max(-(-outcome.ended_ns // WINDOWS), 1)
    ttfts: list[list[float]] = [[] for _ in range(WINDOWS)]
    waiting, running = [0.0] * WINDOWS, [0.0] * WINDOWS
    for row, value in zip(rows, ttft, strict=True):
        ttfts[min(arrival[row] // length, WINDOWS - 1)].append(value)
        _spread(waiting, arrival[row], first[row], length)
        _spread(running, first[row], finished[row], length)
    made = []
    for index, values in enumerate(ttfts):
        values.sort()
        made.append(
            Window(
                start_s=index * length / SECOND,
                arrived=len(values),
                ttft_p50_s=percentile(values, 0.5) if values else 0.0,
                ttft_p99_s=percentile(values, 0.99) if values else 0.0,
                waiting=waiting[index] / length,
                running=running[index] / length,
            )
        )
    return tuple(made)


def _spread(into: list[float], start: int, end: int, length: int) -> None:
    """Add the time between two instants to the windows that it falls into."""
    window = min(start // length, WINDOWS - 1)
    last = min(end // length, WINDOWS - 1)
    while window < last:
        into[window] += (window + 1) * length - start
        window += 1
        start = window * length
    into[window] += max(end - start, 0)
