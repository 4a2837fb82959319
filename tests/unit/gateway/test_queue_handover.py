"""Who has had much of a model has had it also for the next worker."""

import os
from pathlib import Path

import pytest

from pilothouse.gateway import queue_handover
from pilothouse.gateway.meters import Meters
from pilothouse.gateway.model_queue import ModelQueue
from pilothouse.gateway.queue_handover import QueueHandover
from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import Capacity
from pilothouse.model.tenants import Tier
from pilothouse.policy.fairness.queue import QueueSettings
from pilothouse.policy.fairness.ticket import Ticket, TicketState
from pilothouse.telemetry.board import BoardWriter, board_path


class Request:
    generated = 0

    def go(self) -> None:
        """It was running already."""

    def send_back(self) -> None:
        raise AssertionError

    def fail(self, refusal: Refusal) -> None:
        raise AssertionError


def queue(directory: Path, worker: int = 0) -> ModelQueue:
    meters = Meters(BoardWriter(board_path(directory, worker), worker=worker))
    capacity = Capacity(slots=4, tokens=10_000)
    return ModelQueue(QueueSettings(), capacity, meters.queue("m"), lambda callback: callback(), lambda: 1)


def serve(one: ModelQueue, tenant: str, tokens: int) -> None:
    ticket = Ticket(tenant, Tier.STANDARD, tokens, 1)
    assert one.enter(Request(), ticket, 1) is None
    assert ticket.state is TicketState.RUNNING
    one.leave(ticket, 1, None)


def test_counters_go_from_worker_to_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_handover, "KEEP_EVERY_S", 0.0)
    first, before = QueueHandover(tmp_path, 0), queue(tmp_path)
    assert first.latest() == {}
    serve(before, "greedy", 5000)
    first.keep({"m": before})
    left = QueueHandover(tmp_path, 1).latest()
    after = queue(tmp_path, 1)
    after.restore(left["m"])
    assert after.export() == before.export() == left["m"]
    assert left["m"]["standard"]["greedy"] >= 5000


def test_the_latest_counts_and_a_damaged_file_does_not(tmp_path: Path) -> None:
    (tmp_path / "worker-0.fair").write_text('{"m":{"standard":{"a":1.0}}}')
    (tmp_path / "worker-1.fair").write_text('{"m":{"standard":{"a":2.0}}}')
    (tmp_path / "worker-2.fair").write_text('{"m":')
    for number, name in enumerate(("worker-0", "worker-1", "worker-2")):
        os.utime(tmp_path / f"{name}.fair", (number, number))
    assert QueueHandover(tmp_path, 3).latest() == {"m": {"standard": {"a": 2.0}}}


def test_a_directory_that_takes_nothing_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_handover, "KEEP_EVERY_S", 0.0)
    one = queue(tmp_path)
    QueueHandover(tmp_path / "none", 0).keep({"m": one})
