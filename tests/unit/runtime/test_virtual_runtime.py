import pytest

from pilothouse.model.effects import Effect, PlaceReplica, WakeAt
from pilothouse.model.events import Event, ReplicaPlaced, ReplicaRequested, Woke
from pilothouse.model.units import MonotonicNs
from pilothouse.runtime.interpreter import UnknownEffect
from pilothouse.runtime.journal import Journal
from pilothouse.runtime.virtual import VirtualRuntime


class Ticking:
    """Wakes every ten nanoseconds, and places when requested."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def handle(self, event: Event) -> tuple[Effect, ...]:
        self.seen.append(event)
        if isinstance(event, ReplicaRequested):
            return (PlaceReplica(), WakeAt(at=MonotonicNs(event.at + 10), token=1))
        if isinstance(event, Woke):
            return (WakeAt(at=MonotonicNs(event.at + 10), token=event.token + 1),)
        return ()

    def invariants(self) -> None:
        pass


def at(ns: int) -> MonotonicNs:
    return MonotonicNs(ns)


def world(journal: Journal | None = None) -> tuple[VirtualRuntime, Ticking]:
    def place(machine_id: str, effect: PlaceReplica) -> None:
        runtime.schedule(machine_id, ReplicaPlaced(at=at(runtime.now + 15)))

    runtime = VirtualRuntime({PlaceReplica: place}, journal=journal)
    machine = Ticking()
    runtime.add("a", machine)
    runtime.schedule("a", ReplicaRequested(at=at(100)))
    return runtime, machine


def test_time_is_the_time_of_events() -> None:
    runtime, machine = world()
    assert runtime.run(until=at(125)) == 4
    assert [(event.at, type(event)) for event in machine.seen] == [
        (100, ReplicaRequested),
        (110, Woke),
        (115, ReplicaPlaced),
        (120, Woke),
    ]
    assert runtime.now == 125


def test_it_goes_on_where_it_stopped() -> None:
    runtime, machine = world()
    runtime.run(until=at(99))
    assert machine.seen == []
    runtime.run(until=at(110))
    assert len(machine.seen) == 2
    runtime.run(until=at(115))
    assert len(machine.seen) == 3


def test_events_of_one_moment_come_in_the_order_they_were_scheduled() -> None:
    runtime, machine = world()
    events = [Woke(at=at(50), token=token) for token in (9, 3, 7)]
    for event in events:
        runtime.schedule("a", event)
    runtime.run(until=at(50))
    assert machine.seen == events


def test_every_run_is_the_same() -> None:
    journals = [Journal(), Journal()]
    for journal in journals:
        world(journal)[0].run(until=at(1000))
    assert journals[0].entries == journals[1].entries
    assert len(journals[0].entries) > 50


def test_the_past_cannot_be_scheduled() -> None:
    runtime, _ = world()
    runtime.run(until=at(100))
    with pytest.raises(ValueError, match="in the past"):
        runtime.schedule("a", Woke(at=at(99), token=1))


def test_an_effect_without_a_handler_is_raised() -> None:
    runtime = VirtualRuntime({})
    runtime.add("a", Ticking())
    runtime.schedule("a", ReplicaRequested(at=at(1)))
    with pytest.raises(UnknownEffect, match="a asks for PlaceReplica, which has no handler"):
        runtime.run(until=at(1))


def test_a_machine_that_is_removed_hears_nothing_more() -> None:
    runtime, machine = world()
    runtime.remove("a")
    runtime.run(until=at(1000))
    assert machine.seen == []
