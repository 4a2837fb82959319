"""What `/metrics` answers: the workers' board and the controller's view, as Prometheus text or OpenMetrics."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import msgspec
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest, openmetrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from pilothouse.model.fleet import ReplicaState
from pilothouse.model.posture import Outcome
from pilothouse.model.status import FleetStatus, ReplicaStatus
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import Boards, Sample
from pilothouse.telemetry.board_layout import Kind
from pilothouse.telemetry.catalogue import MetricSpec, Source

SECONDS_PER_DAY = 86_400
OPENMETRICS = "application/openmetrics-text"


class Exposition(msgspec.Struct, frozen=True, kw_only=True):
    """A body and its content type."""

    body: bytes
    content_type: str


def expose(boards: Boards, status: FleetStatus, *, accept: str = "") -> Exposition:
    """All metrics at this moment. OpenMetrics if `accept` (the request's header) asks for it, else Prometheus text."""
    collector = _Collector(boards, status)
    if OPENMETRICS in accept:
        return Exposition(
            body=openmetrics.exposition.generate_latest(collector),  # type: ignore[no-untyped-call]
            content_type=openmetrics.exposition.CONTENT_TYPE_LATEST,
        )
    return Exposition(body=generate_latest(collector), content_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Collector:
    """One scrape, in the shape that prometheus-client's writers take."""

    def __init__(self, boards: Boards, status: FleetStatus) -> None:
        self._boards = boards
        self._status = status

    def collect(self) -> Iterable[Metric]:
        by_name: dict[str, list[Sample]] = {}
        for sample in self._boards.samples:
            by_name.setdefault(sample.name, []).append(sample)
        unusable = len(self._boards.problems)
        for spec in catalogue.METRICS:
            if spec.source is Source.WORKER:
                samples = by_name.pop(spec.name, [])
                fitting = [sample for sample in samples if _fits(sample, spec)]
                unusable += len(samples) - len(fitting)
                yield _worker_family(spec, fitting)
        unusable += sum(map(len, by_name.values()))
        yield from _controller_families(self._boards, self._status, unusable)


def _fits(sample: Sample, spec: MetricSpec) -> bool:
    names = sorted(spec.labels)
    return sample.kind is spec.kind and sample.bounds == spec.bounds and [name for name, _ in sample.labels] == names


def _worker_family(spec: MetricSpec, samples: Sequence[Sample]) -> Metric:
    if spec.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)
        edges = [*map(floatToGoString, spec.bounds), "+Inf"]
        for sample in samples:
            cumulative = accumulate(sample.buckets)
            histogram.add_metric(_values(spec, sample), list(zip(edges, cumulative, strict=True)), sample.value)
        return histogram
    return _family(spec, ((_values(spec, sample), sample.value) for sample in samples))


def _values(spec: MetricSpec, sample: Sample) -> list[str]:
    labels = dict(sample.labels)
    return [labels[name] for name in spec.labels]


def _family(spec: MetricSpec, values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    family = (CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily)(
        spec.name, spec.help, labels=spec.labels
    )
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def _controller_families(boards: Boards, status: FleetStatus, unusable: int) -> Iterator[Metric]:
    living = {worker.pid for worker in status.workers}
    versions = [(board.worker, board.snapshot_version) for board in boards.boards if board.pid in living]
    yield _family(catalogue.SNAPSHOT_VERSION, (([str(worker)], version) for worker, version in versions))
    yield _family(catalogue.WORKERS, [((), len(status.workers))])
    yield _family(catalogue.BOARD_PROBLEMS, [((), unusable)])
    yield _family(catalogue.BUILD_INFO, [([status.version], 1)])
    replicas = status.replicas
    yield _family(
        catalogue.REPLICA_STATE,
        (
            ([replica.id, replica.deployment, state.value], float(replica.state is state))
            for replica in replicas
            for state in ReplicaState
        ),
    )
    yield _family(catalogue.REPLICA_RESTARTS, (([replica.id], replica.restarts) for replica in replicas))
    yield _family(
        catalogue.DEPLOYMENT_POSTURE,
        (
            ([each.deployment, outcome.value], float(each.outcome is outcome))
            for each in status.postures
            for outcome in Outcome
            if outcome is not Outcome.NOT_APPLICABLE
        ),
    )
    ages = [each.feed_age_days * SECONDS_PER_DAY for each in status.postures]
    yield _family(catalogue.ADVISORY_FEED_AGE, [((), max(ages))] if ages else [])
    yield _engine_family(catalogue.ENGINE_REQUESTS_RUNNING, ((r, r.requests_running) for r in replicas))
    yield _engine_family(catalogue.ENGINE_REQUESTS_WAITING, ((r, r.requests_waiting) for r in replicas))
    yield _engine_family(catalogue.ENGINE_KV_USAGE, ((r, r.kv_usage_ratio) for r in replicas))


def _engine_family(spec: MetricSpec, gauges: Iterable[tuple[ReplicaStatus, float | None]]) -> Metric:
    """An engine that does not tell has no sample: absent is not zero."""
    return _family(spec, (([r.id, r.deployment, r.model], value) for r, value in gauges if value is not None))
