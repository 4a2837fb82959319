"""What a scraper gets, read back by the parsers of the Prometheus client."""

import math
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from pilothouse.model.status import FleetStatus
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import Boards, BoardWriter, board_path, read_boards
from pilothouse.telemetry.exposition import expose

NOTHING = Boards(boards=(), samples=())


@pytest.fixture
def boards(tmp_path: Path) -> Boards:
    for worker in range(2):
        writer = BoardWriter(board_path(tmp_path, worker), worker=worker)
        requests = {"model": "m", "route": "/v1/chat/completions", "code": "200", "reason": "ok"}
        writer.counter(catalogue.REQUESTS.name, requests).add(2)
        overhead = writer.histogram(catalogue.OVERHEAD.name, catalogue.OVERHEAD.bounds, {"model": 'odd "name"\n\\'})
        overhead.observe(0.00005)
        overhead.observe(2.0)
        writer.set_snapshot_version(7 + worker)
        writer.close()
    return read_boards(tmp_path)


def values(families: Iterable[Metric]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_workers_counts_come_out_added_up(boards: Boards, status: FleetStatus) -> None:
    read = values(parse_text(expose(boards, status).body.decode()))

    requests = (("code", "200"), ("model", "m"), ("reason", "ok"), ("route", "/v1/chat/completions"))
    assert read[("pilothouse_requests_total", requests)] == 4
    assert read[("pilothouse_metrics_series_dropped_total", ())] == 0


def test_buckets_are_cumulative_and_end_in_the_count(boards: Boards, status: FleetStatus) -> None:
    read = values(parse_text(expose(boards, status).body.decode()))

    model = ("model", 'odd "name"\n\\')
    buckets = {
        float(dict(labels)["le"]): value
        for (name, labels), value in read.items()
        if name == "pilothouse_overhead_seconds_bucket"
    }
    assert list(buckets) == [*catalogue.OVERHEAD_BOUNDS, math.inf]
    assert buckets[0.00005] == buckets[1.0] == 2
    assert buckets[math.inf] == read[("pilothouse_overhead_seconds_count", (model,))] == 4
    assert read[("pilothouse_overhead_seconds_sum", (model,))] == pytest.approx(4.0001)


def test_the_controllers_view(boards: Boards, status: FleetStatus) -> None:
    read = values(parse_text(expose(boards, status).body.decode()))

    engine = (("deployment", "d"), ("model", "m"), ("replica", "d-0"))
    assert read[("pilothouse_engine_requests_running", engine)] == 3
    assert read[("pilothouse_engine_requests_waiting", engine)] == 0
    assert read[("pilothouse_engine_kv_usage_ratio", engine)] == 0.25
    assert read[("pilothouse_replica_restarts_total", (("replica", "d-0"),))] == 2
    assert read[("pilothouse_build_info", (("version", "1.2.3"),))] == 1
    assert read[("pilothouse_workers", ())] == 1
    states = {
        (dict(labels)["replica"], dict(labels)["state"])
        for (name, labels), value in read.items()
        if name == "pilothouse_replica_state" and value == 1
    }
    assert states == {("d-0", "Ready"), ("d-1", "Loading")}


def test_an_engine_that_does_not_tell_has_no_sample(status: FleetStatus) -> None:
    read = values(parse_text(expose(NOTHING, status).body.decode()))

    assert [
        labels for name, labels in read if name.startswith("pilothouse_engine") and ("replica", "d-1") in labels
    ] == []


def test_only_living_workers_tell_their_snapshot(boards: Boards, status: FleetStatus) -> None:
    dead = msgspec.structs.replace(boards.boards[1], pid=2**30)
    with_a_dead_one = msgspec.structs.replace(boards, boards=(boards.boards[0], dead))

    read = values(parse_text(expose(with_a_dead_one, status).body.decode()))

    assert {name_labels: v for name_labels, v in read.items() if name_labels[0] == "pilothouse_snapshot_version"} == {
        ("pilothouse_snapshot_version", (("worker", "0"),)): 7
    }


def test_series_the_catalogue_does_not_know_are_counted_and_left_out(tmp_path: Path, status: FleetStatus) -> None:
    writer = BoardWriter(board_path(tmp_path, 0), worker=0)
    writer.counter("pilothouse_from_the_future_total", {}).add()
    writer.counter(catalogue.REQUESTS.name, {"model": "m"}).add()
    writer.histogram(catalogue.OVERHEAD.name, (1.0,), {"model": "m"}).observe(0.5)
    writer.gauge(catalogue.TOKENS.name, {"model": "m", "kind": "input"}).set(1)
    writer.close()
    board_path(tmp_path, 1).write_bytes(b"damaged")

    body = expose(read_boards(tmp_path), status).body.decode()

    assert values(parse_text(body))[("pilothouse_board_problems", ())] == 5
    assert "future" not in body


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "application/openmetrics-text; version=banana",
    ],
)
def test_openmetrics_for_those_who_ask(boards: Boards, status: FleetStatus, accept: str) -> None:
    exposition = expose(boards, status, accept=accept)

    assert exposition.content_type.startswith("application/openmetrics-text; version=1.0.0")
    read = values(parse_openmetrics(exposition.body.decode()))  # type: ignore[no-untyped-call]
    assert read == values(parse_text(expose(boards, status).body.decode()))


def test_plain_text_for_everybody_else(status: FleetStatus) -> None:
    assert expose(NOTHING, status, accept="*/*").content_type == "text/plain; version=0.0.4; charset=utf-8"


def test_every_metric_of_the_catalogue_is_shown(status: FleetStatus) -> None:
    shown = {
        line.split()[2] for line in expose(NOTHING, status).body.decode().splitlines() if line.startswith("# TYPE")
    }
    assert shown == {spec.name for spec in catalogue.METRICS}
