import asyncio
import logging
from collections.abc import Mapping

import pytest

from pilothouse.model.effects import AwaitDrained, Effect, LaunchProcess, PlaceReplica, Probe, WakeAt
from pilothouse.model.events import Event, ReplicaPlaced, ReplicaRequested, Woke
from pilothouse.model.units import MonotonicNs, after, seconds
from pilothouse.runtime.journal import Journal
from pilothouse.runtime.live import LiveRuntime, monotonic_now
from pilothouse.testing.processes import wait_until


class Scripted:
    """Answers each kind of event with the effects it was given for it."""

    def __init__(self, answers: Mapping[type[Event], tuple[Effect, ...]]) -> None:
        self.answers = answers
        self.seen: list[Event] = []

    def handle(self, event: Event) -> tuple[Effect, ...]:
        self.seen.append(event)
        return self.answers.get(type(event), ())

    def invariants(self) -> None:
        pass


def requested() -> ReplicaRequested:
    return ReplicaRequested(at=monotonic_now())


@pytest.mark.asyncio
async def test_a_task_answers_with_an_event() -> None:
    machine = Scripted({ReplicaRequested: (PlaceReplica(),)})
    placed = ReplicaPlaced(at=MonotonicNs(5))

    async def place(machine_id: str, effect: PlaceReplica) -> ReplicaPlaced:
        await asyncio.sleep(0)
        return placed

    runtime = LiveRuntime({PlaceReplica: place})
    runtime.add("a", machine)
    runtime.post("a", requested())
    await wait_until(lambda: machine.seen[1:] == [placed], "the answer")
    await runtime.close()


@pytest.mark.asyncio
async def test_a_plain_handler_that_posts_does_not_enter_the_machine_again() -> None:
    order: list[str] = []

    class Watching(Scripted):
        def handle(self, event: Event) -> tuple[Effect, ...]:
            order.append(f"in {type(event).__name__}")
            return super().handle(event)

    def place(machine_id: str, effect: PlaceReplica) -> None:
        order.append("placing")
        runtime.post(machine_id, ReplicaPlaced(at=monotonic_now()))
        order.append("placed")

    runtime = LiveRuntime({PlaceReplica: place, Probe: lambda machine_id, effect: order.append("probed")})
    runtime.add("a", Watching({ReplicaRequested: (PlaceReplica(), Probe(token=1))}))
    runtime.post("a", requested())
    assert order == ["in ReplicaRequested", "placing", "placed", "probed", "in ReplicaPlaced"]
    await runtime.close()


@pytest.mark.asyncio
async def test_a_timer_wakes_with_its_token_and_not_before_its_time() -> None:
    wake = WakeAt(at=after(monotonic_now(), seconds(0.02)), token=7)
    machine = Scripted({ReplicaRequested: (wake,)})
    runtime = LiveRuntime({})
    runtime.add("a", machine)
    runtime.post("a", requested())
    await wait_until(lambda: len(machine.seen) == 2, "the timer")
    woke = machine.seen[1]
    assert isinstance(woke, Woke)
    assert woke.token == 7
    assert woke.at >= wake.at
    await runtime.close()


@pytest.mark.asyncio
async def test_a_timer_in_the_past_wakes_at_once() -> None:
    machine = Scripted({ReplicaRequested: (WakeAt(at=MonotonicNs(0), token=7),)})
    runtime = LiveRuntime({})
    runtime.add("a", machine)
    runtime.post("a", requested())
    await wait_until(lambda: len(machine.seen) == 2, "the timer")
    await runtime.close()


@pytest.mark.asyncio
async def test_closing_leaves_no_timer_and_no_task(caplog: pytest.LogCaptureFixture) -> None:
    started = asyncio.Event()
    ended: list[str] = []

    async def place(machine_id: str, effect: PlaceReplica) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(machine_id)

    machine = Scripted({ReplicaRequested: (PlaceReplica(), WakeAt(at=after(monotonic_now(), seconds(0.01)), token=1))})
    before = asyncio.all_tasks()
    runtime = LiveRuntime({PlaceReplica: place})
    runtime.add("a", machine)
    runtime.post("a", requested())
    await started.wait()
    await runtime.close()
    assert ended == ["a"]
    assert asyncio.all_tasks() == before
    await asyncio.sleep(0.02)
    runtime.post("a", requested())
    assert len(machine.seen) == 1
    assert caplog.records == []


@pytest.mark.asyncio
async def test_a_task_that_is_ended_before_it_began_is_no_warning() -> None:
    async def place(machine_id: str, effect: PlaceReplica) -> None:
        raise AssertionError("it was ended before it began")

    runtime = LiveRuntime({PlaceReplica: place})
    runtime.add("a", Scripted({ReplicaRequested: (PlaceReplica(),)}))
    runtime.post("a", requested())
    await runtime.close()


@pytest.mark.asyncio
async def test_one_kind_of_effect_of_one_machine_can_be_cancelled() -> None:
    running: set[str] = set()

    async def work(machine_id: str, effect: Effect) -> None:
        name = f"{machine_id} {type(effect).__name__}"
        running.add(name)
        try:
            await asyncio.Event().wait()
        finally:
            running.discard(name)

    runtime = LiveRuntime({PlaceReplica: work, AwaitDrained: work})
    for machine_id in ("a", "b"):
        runtime.add(machine_id, Scripted({ReplicaRequested: (PlaceReplica(), AwaitDrained())}))
        runtime.post(machine_id, requested())
    await wait_until(lambda: len(running) == 4, "all to run")
    runtime.cancel("a", AwaitDrained)
    await wait_until(lambda: running == {"a PlaceReplica", "b PlaceReplica", "b AwaitDrained"}, "one to end")
    runtime.remove("b")
    await wait_until(lambda: running == {"a PlaceReplica"}, "those of b to end")
    await runtime.close()
    assert running == set()


@pytest.mark.asyncio
async def test_removing_a_machine_ends_its_timers() -> None:
    machine = Scripted({ReplicaRequested: (WakeAt(at=after(monotonic_now(), seconds(0.01)), token=1),)})
    runtime = LiveRuntime({})
    runtime.add("a", machine)
    runtime.post("a", requested())
    runtime.remove("a")
    runtime.add("a", machine)
    await asyncio.sleep(0.03)
    assert len(machine.seen) == 1
    await runtime.close()


@pytest.mark.asyncio
async def test_an_answer_may_cancel_the_tasks_of_its_own_kind() -> None:
    machine = Scripted({ReplicaRequested: (PlaceReplica(),), ReplicaPlaced: (LaunchProcess(),)})

    async def place(machine_id: str, effect: PlaceReplica) -> ReplicaPlaced:
        return ReplicaPlaced(at=monotonic_now())

    launched: list[str] = []

    def launch(machine_id: str, effect: LaunchProcess) -> None:
        runtime.cancel(machine_id, PlaceReplica)
        launched.append(machine_id)

    runtime = LiveRuntime({PlaceReplica: place, LaunchProcess: launch})
    runtime.add("a", machine)
    runtime.post("a", requested())
    await wait_until(lambda: launched == ["a"], "the launch")
    await runtime.close()


@pytest.mark.asyncio
async def test_an_effect_without_a_handler_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    runtime = LiveRuntime({})
    runtime.add("a", Scripted({ReplicaRequested: (PlaceReplica(),)}))
    runtime.post("a", requested())
    await runtime.close()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "a asks for PlaceReplica, which has no handler" in caplog.text


@pytest.mark.asyncio
async def test_a_handler_that_fails_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def place(machine_id: str, effect: PlaceReplica) -> None:
        raise OSError("disk on fire")

    runtime = LiveRuntime({PlaceReplica: place})
    runtime.add("a", Scripted({ReplicaRequested: (PlaceReplica(),)}))
    runtime.post("a", requested())
    await wait_until(lambda: "disk on fire" in caplog.text, "the report")
    await runtime.close()


@pytest.mark.asyncio
async def test_what_happens_is_in_the_journal() -> None:
    journal = Journal()
    runtime = LiveRuntime({}, journal=journal)
    runtime.add("a", Scripted({}))
    event = requested()
    runtime.post("a", event)
    await runtime.close()
    assert [entry.event for entry in journal.entries] == [event]
