import pytest

from pilothouse.model.effects import Effect, PlaceReplica, Probe
from pilothouse.model.events import Event, ReplicaRequested, Woke
from pilothouse.model.units import MonotonicNs
from pilothouse.runtime.interpreter import Interpreter
from pilothouse.runtime.journal import Journal


class Recorder:
    """Answers ReplicaRequested with two effects and everything else with none; fails on tokens below zero."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.inside = False

    def handle(self, event: Event) -> tuple[Effect, ...]:
        assert not self.inside, "entered while it was being left"
        if isinstance(event, Woke) and event.token < 0:
            raise RuntimeError("no such token")
        self.seen.append(event)
        return (PlaceReplica(), Probe(token=1)) if isinstance(event, ReplicaRequested) else ()

    def invariants(self) -> None:
        pass


REQUESTED = ReplicaRequested(at=MonotonicNs(1))


def woke(token: int) -> Woke:
    return Woke(at=MonotonicNs(2), token=token)


def test_an_event_posted_while_carrying_out_an_effect_waits_for_its_turn() -> None:
    machine = Recorder()
    order: list[str] = []

    def perform(machine_id: str, effect: Effect) -> None:
        order.append(type(effect).__name__)
        if isinstance(effect, PlaceReplica):
            machine.inside = True
            interpreter.post(machine_id, woke(1))
            machine.inside = False
            order.append("posted")

    interpreter = Interpreter(perform)
    interpreter.add("a", machine)
    interpreter.post("a", REQUESTED)
    assert order == ["PlaceReplica", "posted", "Probe"]
    assert machine.seen == [REQUESTED, woke(1)]


def test_events_for_machines_that_are_gone_are_dropped() -> None:
    machine = Recorder()
    interpreter = Interpreter(lambda machine_id, effect: None)
    interpreter.add("a", machine)
    interpreter.remove("a")
    interpreter.post("a", REQUESTED)
    interpreter.remove("a")
    assert machine.seen == []
    assert "a" not in interpreter


def test_one_machine_for_each_id() -> None:
    interpreter = Interpreter(lambda machine_id, effect: None)
    interpreter.add("a", Recorder())
    assert "a" in interpreter
    with pytest.raises(ValueError, match="a is running already"):
        interpreter.add("a", Recorder())


def test_without_a_listener_a_failure_is_raised_and_the_next_event_is_handled() -> None:
    machine = Recorder()
    interpreter = Interpreter(lambda machine_id, effect: None)
    interpreter.add("a", machine)
    with pytest.raises(RuntimeError, match="no such token"):
        interpreter.post("a", woke(-1))
    interpreter.post("a", woke(1))
    assert machine.seen == [woke(1)]


def test_a_listener_hears_of_a_failure_and_the_rest_goes_on() -> None:
    machine, failures = Recorder(), []

    def perform(machine_id: str, effect: Effect) -> None:
        if isinstance(effect, PlaceReplica):
            interpreter.post("a", woke(-1))
            interpreter.post("a", woke(2))

    interpreter = Interpreter(perform, on_error=lambda *failure: failures.append(failure))
    interpreter.add("a", machine)
    interpreter.post("a", REQUESTED)
    assert [(machine_id, event, str(error)) for machine_id, event, error in failures] == [
        ("a", woke(-1), "no such token")
    ]
    assert machine.seen == [REQUESTED, woke(2)]


def test_every_step_is_in_the_journal() -> None:
    journal = Journal()
    interpreter = Interpreter(lambda machine_id, effect: None, journal=journal)
    interpreter.add("a", Recorder())
    interpreter.post("a", REQUESTED)
    interpreter.post("a", woke(1))
    assert [(entry.machine, entry.event, entry.effects) for entry in journal.entries] == [
        ("a", REQUESTED, (PlaceReplica(), Probe(token=1))),
        ("a", woke(1), ()),
    ]
