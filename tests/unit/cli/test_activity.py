"""Rates and quantiles between two readings of the boards."""

from pathlib import Path

import pytest
from rich.console import Console

from pilothouse.cli.activity import Activity, ModelActivity, between, quantile_of
from pilothouse.cli.top_view import view
from pilothouse.model.fleet import ReplicaState
from pilothouse.model.ids import DeploymentName, FleetName, ModelName, ReplicaId
from pilothouse.model.status import FleetStatus, ReplicaStatus
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import Boards, BoardWriter, board_path, read_boards

BOUNDS = (1.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("share", "counts", "value"),
    [
        (0.5, [0, 0, 0, 0], None),
        (0.5, [10, 0, 0, 0], 0.5),
        (0.5, [0, 10, 0, 0], 1.5),
        (0.95, [0, 10, 0, 0], 1.95),
        (0.5, [5, 0, 5, 0], 1.0),
        (0.75, [5, 0, 5, 0], 3.0),
        (0.5, [0, 0, 0, 7], 4.0),
        (1.0, [1, 1, 1, 0], 4.0),
    ],
)
def test_quantiles_are_estimated_within_a_bucket(share: float, counts: list[float], value: float | None) -> None:
    assert quantile_of(share, BOUNDS, counts) == (value if value is None else pytest.approx(value))


def status() -> FleetStatus:
    replica = ReplicaStatus(
        id=ReplicaId("d-0"),
        model=ModelName("m"),
        deployment=DeploymentName("d"),
        engine="fake",
        state=ReplicaState.READY,
        detail="",
        restarts=0,
        in_flight=2,
    )
    return FleetStatus(
        fleet=FleetName("f"),
        version="1",
        gateway="127.0.0.1:1",
        admin="127.0.0.1:2",
        fleet_file=None,
        ready=True,
        snapshot_version=1,
        workers=(),
        replicas=(replica,),
    )


def readings(directory: Path) -> tuple[Boards, Boards]:
    board = BoardWriter(board_path(directory, 0), worker=0)
    model = {"model": "m"}
    ok = board.counter(catalogue.REQUESTS.name, model | {"route": "r", "code": "200", "reason": "ok"})
    lost = board.counter(catalogue.REQUESTS.name, model | {"route": "r", "code": "502", "reason": "replica_lost"})
    gone = {"route": "r", "code": "499", "reason": "client_disconnected"}
    left = board.counter(catalogue.REQUESTS.name, model | gone)
    output = board.counter(catalogue.TOKENS.name, model | {"kind": "output"})
    first = board.histogram(catalogue.TIME_TO_FIRST_TOKEN.name, catalogue.TIME_TO_FIRST_TOKEN.bounds, model)
    busy = board.gauge(catalogue.IN_FLIGHT_REQUESTS.name, model | {"replica": "d-0"})
    ok.add(100)
    first.observe(9.0)
    before = read_boards(directory)
    ok.add(8)
    lost.add(2)
    left.add(2)
    output.add(40)
    busy.set(3)
    for _ in range(10):
        first.observe(0.03)
    after = read_boards(directory)
    board.close()
    return before, after


def test_only_the_interval_counts(tmp_path: Path) -> None:
    before, after = readings(tmp_path)
    activity = between(before, after, 2.0, status())
    (model,) = activity.models
    assert (model.model, model.requests_per_s, model.failed_per_s) == ("m", 6.0, 1.0)
    assert (model.output_tokens_per_s, model.input_tokens_per_s, model.in_flight) == (20.0, 0.0, 3.0)
    assert model.first_token_p95_s is not None
    assert 0.01 < model.first_token_p95_s < 0.1, "what was observed before the interval is not in it"
    assert model.duration_p50_s is None


def test_a_board_that_was_begun_anew_has_no_negative_rates(tmp_path: Path) -> None:
    before, after = readings(tmp_path)
    (model,) = between(after, before, 1.0, status()).models
    assert (model.requests_per_s, model.output_tokens_per_s, model.first_token_p50_s) == (0.0, 0.0, None)


def test_what_is_shown(tmp_path: Path) -> None:
    activity: Activity = between(*readings(tmp_path), 2.0, status())
    console = Console(width=200, no_color=True)
    with console.capture() as shown:
        console.print(view(activity))
    text = shown.get()
    assert "fleet f: ready, 0 workers, 0 connections, 6.0 requests/s, 20 tokens/s (over 2.0 s)" in text
    assert text.splitlines()[3].split()[:6] == ["m", "6.0", "1.0", "3", "0", "20"]
    assert "d-0" in text
    assert isinstance(activity.models[0], ModelActivity)
