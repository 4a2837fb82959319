import msgspec
import pytest

from pilothouse.model.effects import PlaceReplica, PublishState
from pilothouse.model.events import ReplicaPlaced, ReplicaRequested
from pilothouse.model.fleet import ReplicaState
from pilothouse.model.ids import ReplicaId
from pilothouse.model.units import MonotonicNs
from pilothouse.policy.replica_lifecycle import ReplicaLifecycle
from pilothouse.runtime.journal import Journal
from pilothouse.runtime.replay import ReplayDiverged, replay


def make(machine_id: str) -> ReplicaLifecycle:
    return ReplicaLifecycle(ReplicaId(machine_id))


def recorded() -> Journal:
    journal = Journal()
    machines = {name: make(name) for name in ("a", "b")}
    for name, event in (
        ("a", ReplicaRequested(at=MonotonicNs(1))),
        ("b", ReplicaRequested(at=MonotonicNs(2))),
        ("a", ReplicaPlaced(at=MonotonicNs(3))),
    ):
        journal.record(name, event, machines[name].handle(event))
    return journal


def test_the_machines_end_where_they_ended() -> None:
    machines = replay(recorded().entries, make)
    states = {name: machine.state for name, machine in machines.items()}
    assert states == {"a": ReplicaState.STARTING, "b": ReplicaState.PLACING}


def test_the_first_other_answer_is_shown_with_what_was_before_it() -> None:
    entries = list(recorded().entries)
    entries[2] = msgspec.structs.replace(entries[2], effects=(PublishState(state=ReplicaState.READY), PlaceReplica()))
    with pytest.raises(ReplayDiverged) as diverged:
        replay(entries, make)
    text = str(diverged.value)
    assert "recorded: 0.000 s a: ReplicaPlaced -> PublishState(state=Ready), PlaceReplica" in text
    assert "now:      0.000 s a: ReplicaPlaced -> PublishState(state=Starting), LaunchProcess" in text
    assert "0.000 s a: ReplicaRequested -> PublishState(state=Placing), PlaceReplica" in text
