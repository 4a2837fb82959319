"""What a fleet did between two readings of its workers' boards."""

import itertools
from collections.abc import Callable, Iterable

import msgspec

from pilothouse.model.status import FleetStatus, ReplicaStatus
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import Boards, Sample
from pilothouse.telemetry.catalogue import MetricSpec, Reason, TokenKind


class ModelActivity(msgspec.Struct, frozen=True, kw_only=True):
    """One model over one interval. Rates a second; times in seconds, `None` where nothing was observed.

    `failed_per_s` are the requests that the gateway or the engine refused or lost; a client that went away is not one.
    """

    model: str
    requests_per_s: float
    failed_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    in_flight: float
    duration_p50_s: float | None
    duration_p95_s: float | None
    first_token_p50_s: float | None
    first_token_p95_s: float | None
    inter_token_p50_s: float | None


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet over one interval of `interval_s` seconds, and its replicas as they are at the end of it."""

    fleet: str
    ready: bool
    interval_s: float
    connections: float
    workers: int
    models: tuple[ModelActivity, ...]
    replicas: tuple[ReplicaStatus, ...]


def between(before: Boards, after: Boards, interval_s: float, status: FleetStatus) -> Activity:
    """What happened from one reading to the next, `interval_s` later."""
    names = {dict(sample.labels)["model"] for sample in after.samples if sample.name == catalogue.REQUESTS.name}
    known = {replica.model for replica in status.replicas}
    return Activity(
        fleet=status.fleet,
        ready=status.ready,
        interval_s=interval_s,
        connections=after.value(catalogue.CONNECTIONS.name, {}),
        workers=len(status.workers),
        models=tuple(_model(name, before, after, interval_s) for name in sorted(names | known) if name),
        replicas=status.replicas,
    )


def _model(name: str, before: Boards, after: Boards, interval_s: float) -> ModelActivity:
    def rate(spec: MetricSpec, wanted: Callable[[dict[str, str]], bool] = lambda labels: True) -> float:
        grown = _total(after, spec, name, wanted) - _total(before, spec, name, wanted)
        return max(0.0, grown) / interval_s

    def quantile(spec: MetricSpec, share: float) -> float | None:
        old, new = _buckets(before, spec, name), _buckets(after, spec, name)
        grown = [max(0.0, b - a) for a, b in itertools.zip_longest(old, new, fillvalue=0.0)]
        return quantile_of(share, spec.bounds, grown)

    good = {Reason.OK, Reason.CLIENT_DISCONNECTED}
    return ModelActivity(
        model=name,
        requests_per_s=rate(catalogue.REQUESTS),
        failed_per_s=rate(catalogue.REQUESTS, lambda labels: labels["reason"] not in good),
        input_tokens_per_s=rate(catalogue.TOKENS, lambda labels: labels["kind"] == TokenKind.INPUT),
        output_tokens_per_s=rate(catalogue.TOKENS, lambda labels: labels["kind"] == TokenKind.OUTPUT),
        in_flight=after.value(catalogue.IN_FLIGHT_REQUESTS.name, {"model": name}),
        duration_p50_s=quantile(catalogue.REQUEST_DURATION, 0.5),
        duration_p95_s=quantile(catalogue.REQUEST_DURATION, 0.95),
        first_token_p50_s=quantile(catalogue.TIME_TO_FIRST_TOKEN, 0.5),
        first_token_p95_s=quantile(catalogue.TIME_TO_FIRST_TOKEN, 0.95),
        inter_token_p50_s=quantile(catalogue.INTER_TOKEN_LATENCY, 0.5),
    )


def _of(boards: Boards, spec: MetricSpec, model: str) -> Iterable[tuple[dict[str, str], Sample]]:
    for sample in boards.samples:
        labels = dict(sample.labels)
        if sample.name == spec.name and labels.get("model") == model:
            yield labels, sample


def _total(boards: Boards, spec: MetricSpec, model: str, wanted: Callable[[dict[str, str]], bool]) -> float:
    return sum(sample.value for labels, sample in _of(boards, spec, model) if wanted(labels))


def _buckets(boards: Boards, spec: MetricSpec, model: str) -> tuple[float, ...]:
    return next((sample.buckets for _, sample in _of(boards, spec, model)), ())


def quantile_of(share: float, bounds: tuple[float, ...], counts: list[float]) -> float | None:
    """The value below which `share` (0 to 1) of the observations lie, as Prometheus' histogram_quantile estimates it.

    `counts` are per bucket, not cumulative; the last one is of what is above the last bound, for which that bound is
    given. `None` without observations.
    """
    total = sum(counts)
    if not total:
        return None
    rank, passed = share * total, 0.0
    for index, count in enumerate(counts[: len(bounds)]):
        if count and passed + count >= rank:
            low = bounds[index - 1] if index else 0.0
            return low + (bounds[index] - low) * (rank - passed) / count
        passed += count
    return bounds[-1]
