"""The table of metrics keeps the naming rules that dashboards and queries rely on."""

import re

import pytest

from pilothouse.telemetry.board_layout import Kind
from pilothouse.telemetry.catalogue import METRICS, MetricSpec, Source

UNITS = ("_seconds", "_bytes", "_ratio", "_total", "_info")
COUNTS_OF_THINGS = {
    "pilothouse_queue_waiting",
    "pilothouse_in_flight_requests",
    "pilothouse_in_flight_tokens",
    "pilothouse_connections",
    "pilothouse_upstream_connections",
    "pilothouse_snapshot_version",
    "pilothouse_workers",
    "pilothouse_board_problems",
    "pilothouse_replica_state",
    "pilothouse_deployment_posture",
    "pilothouse_engine_requests_running",
    "pilothouse_engine_requests_waiting",
}
BOUNDED_LABELS = {
    "model", "route", "code", "reason", "replica", "deployment", "kind", "phase", "worker", "version", "state",
    "entity", "action", "direction",
}  # fmt: skip

every_metric = pytest.mark.parametrize("spec", METRICS, ids=lambda spec: spec.name)


@every_metric
def test_a_name_has_the_prefix_and_a_unit(spec: MetricSpec) -> None:
    assert re.fullmatch(r"pilothouse(_[a-z]+)+", spec.name)
    assert spec.name.endswith(UNITS) or spec.name in COUNTS_OF_THINGS
    assert spec.name.endswith("_total") is (spec.kind is Kind.COUNTER)


@every_metric
def test_labels_are_bounded_and_bounds_ascend(spec: MetricSpec) -> None:
    assert set(spec.labels) <= BOUNDED_LABELS
    assert bool(spec.bounds) is (spec.kind is Kind.HISTOGRAM)
    assert list(spec.bounds) == sorted(set(spec.bounds))
    assert spec.help.endswith(".")


def test_names_are_unique() -> None:
    assert len({spec.name for spec in METRICS}) == len(METRICS)


def test_gauges_of_workers_have_no_worker_label() -> None:
    """They are added up over workers, so one for each would be lost."""
    assert all("worker" not in spec.labels for spec in METRICS if spec.source is Source.WORKER)
