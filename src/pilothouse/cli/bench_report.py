"""What a load run comes to: latencies by percentile, throughput, errors by code."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pilothouse.cli.bench_client import Outcome

if TYPE_CHECKING:
    from rich.table import Table

BUSY_CLIENT_RATIO = 0.7  # of one core; above it, waiting for the client itself shows in the latencies


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds. Percentiles are nearest-rank: each is a value that was measured."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Latencies are of the requests that went well, and `None` if there were none to measure.

    `time_to_first_token` is from sending to the first piece of the answer, `inter_token_latency` the gaps between
    pieces, `end_to_end` from sending to the end. `client_cpu_ratio` is the load generator's own share of one core.
    """

    model: str
    url: str
    concurrency: int
    stream: bool
    requests: int
    failed: int
    errors: dict[str, int]
    duration_s: float
    requests_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    time_to_first_token: Distribution | None
    inter_token_latency: Distribution | None
    end_to_end: Distribution | None
    client_cpu_ratio: float


def distribution(seconds: Sequence[float]) -> Distribution | None:
    """The distribution of some durations; `None` of none."""
    if not seconds:
        return None
    ordered = sorted(seconds)

    def percentile(ratio: float) -> float:
        return _ms(ordered[math.ceil(ratio * len(ordered)) - 1])

    return Distribution(
        count=len(ordered),
        mean=_ms(sum(ordered) / len(ordered)),
        p50=percentile(0.50),
        p90=percentile(0.90),
        p99=percentile(0.99),
        max=_ms(ordered[-1]),
    )


def report(
    outcomes: Sequence[Outcome], *, model: str, url: str, concurrency: int, stream: bool, cpu_s: float
) -> BenchReport:
    """The report of a run. There must be an outcome; `cpu_s` is the processor time that the run took here."""
    good = [each for each in outcomes if each.error is None]
    duration = max(each.ended for each in outcomes) - min(each.started for each in outcomes)
    per_s = 1 / duration if duration > 0 else 0.0
    return BenchReport(
        model=model,
        url=url,
        concurrency=concurrency,
        stream=stream,
        requests=len(outcomes),
        failed=len(outcomes) - len(good),
        errors=dict(Counter(each.error for each in outcomes if each.error is not None).most_common()),
        duration_s=round(duration, 3),
        requests_per_s=round(len(good) * per_s, 3),
        input_tokens_per_s=round(sum(each.input_tokens for each in good) * per_s, 1),
        output_tokens_per_s=round(sum(each.output_tokens for each in good) * per_s, 1),
        time_to_first_token=distribution([each.tokens_at[0] - each.started for each in good if each.tokens_at]),
        inter_token_latency=distribution(
            [
                later - earlier
                for each in good
                for earlier, later in zip(each.tokens_at, each.tokens_at[1:], strict=False)
            ]
        ),
        end_to_end=distribution([each.ended - each.started for each in good]),
        client_cpu_ratio=round(cpu_s * per_s, 3),
    )


def table(found: BenchReport) -> "Table":
    """The latencies for a terminal."""
    from rich.table import Table

    shown = Table("milliseconds", "mean", "p50", "p90", "p99", "max", "count", box=None, pad_edge=False)
    for column in shown.columns[1:]:
        column.justify = "right"
    rows = (
        ("time to first token", found.time_to_first_token),
        ("inter-token latency", found.inter_token_latency),
        ("end to end", found.end_to_end),
    )
    for name, of in rows:
        if of is not None:
            shown.add_row(name, *(f"{each:.1f}" for each in (of.mean, of.p50, of.p90, of.p99, of.max)), str(of.count))
    return shown


def summary(found: BenchReport) -> list[str]:
    """The rest for a terminal, one line each."""
    where = f"{found.requests} requests to {found.model} at {found.url}"
    rates = f"{found.requests_per_s:.2f} requests/s, {found.output_tokens_per_s:.1f} output tokens/s"
    lines = [
        f"{where}, {found.concurrency} at a time, in {found.duration_s:.1f} s",
        f"throughput  {rates}, {found.input_tokens_per_s:.1f} input tokens/s",
    ]
    if found.failed:
        codes = ", ".join(f"{code} {count}" for code, count in found.errors.items())
        lines.append(f"failed      {found.failed} ({codes})")
    return lines


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
