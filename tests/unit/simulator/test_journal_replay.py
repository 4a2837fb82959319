from pathlib import Path

import msgspec
import pytest

from pilothouse.cli.main import run as command
from pilothouse.model.events import ReplicaPlaced, ReplicaRequested
from pilothouse.model.ids import ReplicaId
from pilothouse.model.units import MonotonicNs
from pilothouse.policy.replica_lifecycle import LifecycleSettings, ReplicaLifecycle
from pilothouse.runtime.journal import Journal, decode, encode
from pilothouse.simulator.journal_replay import compare


def recorded() -> bytes:
    journal = Journal()
    machine = ReplicaLifecycle(ReplicaId("a-0"), LifecycleSettings())
    for event in (ReplicaRequested(at=MonotonicNs(1)), ReplicaPlaced(at=MonotonicNs(2))):
        journal.record("a-0", event, machine.handle(event))
    return encode(journal.entries)


def test_the_same_policies_decide_the_same() -> None:
    found = compare(recorded())
    assert (found.steps, found.machines, found.differences) == (2, 1, ())


def test_what_is_decided_otherwise_is_shown() -> None:
    entries = list(decode(recorded()))
    entries[1] = msgspec.structs.replace(entries[1], effects=())
    (difference,) = compare(encode(entries)).differences
    assert difference.step == 2
    assert difference.recorded == "nothing"
    assert difference.now != "nothing"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(recorded())
    assert command(["simulate", "--replay", str(path)], {}) == 0
    assert "2 steps of 1 replicas, 0 decided otherwise" in capsys.readouterr().err
    path.write_text("no journal")
    assert command(["simulate", "--replay", str(path)], {}) == 1
