"""One journal, recorded live, gives equal effects in virtual time and in a replay, and in a live run again."""

import asyncio

import pytest

from pilothouse.model.effects import (
    AnyEffect,
    AwaitDrained,
    Effect,
    KillProcess,
    LaunchProcess,
    PlaceReplica,
    Probe,
    PublishState,
    ReleasePlacement,
    TerminateProcess,
)
from pilothouse.model.events import (
    DrainCompleted,
    DrainRequested,
    Event,
    ProbeAnswered,
    ProcessExited,
    ProcessStarted,
    ReplicaPlaced,
    ReplicaRequested,
)
from pilothouse.model.fleet import Endpoint, ReplicaState
from pilothouse.model.ids import ReplicaId
from pilothouse.model.units import MILLISECOND, DurationNs
from pilothouse.policy.replica_lifecycle import LifecycleSettings, ReplicaLifecycle
from pilothouse.runtime.journal import Journal, JournalEntry, decode, encode
from pilothouse.runtime.live import LiveRuntime, monotonic_now
from pilothouse.runtime.replay import replay
from pilothouse.runtime.virtual import VirtualRuntime
from pilothouse.testing.processes import wait_until

REPLICAS = ("smollm2-0", "smollm2-1")
ENDPOINT = Endpoint(host="127.0.0.1", port=41873)
QUICK = LifecycleSettings(
    backoff_first=DurationNs(5 * MILLISECOND),
    probe_first=DurationNs(1 * MILLISECOND),
    probe_ready_every=DurationNs(5 * MILLISECOND),
)


def make(machine_id: str) -> ReplicaLifecycle:
    return ReplicaLifecycle(ReplicaId(machine_id), QUICK)


async def record_live() -> tuple[JournalEntry, ...]:
    """Two replicas begin, one of them crashes and comes back, both are probed and drained."""
    journal = Journal()
    machines = {name: make(name) for name in REPLICAS}
    launches: list[str] = []

    async def place(name: str, _: PlaceReplica) -> Event:
        await asyncio.sleep(0)
        return ReplicaPlaced(at=monotonic_now())

    async def launch(name: str, _: LaunchProcess) -> Event:
        launches.append(name)
        return ProcessStarted(at=monotonic_now(), pid=len(launches), endpoint=ENDPOINT)

    async def probe(name: str, effect: Probe) -> Event:
        await asyncio.sleep(0)
        return ProbeAnswered(at=monotonic_now(), token=effect.token, ready=True, listening=True)

    def terminate(name: str, _: TerminateProcess) -> None:
        runtime.post(name, ProcessExited(at=monotonic_now(), status=-15, log_tail=("bye",)))

    async def drained(name: str, _: AwaitDrained) -> Event:
        return DrainCompleted(at=monotonic_now())

    runtime = LiveRuntime(
        {
            PublishState: nothing,
            ReleasePlacement: nothing,
            KillProcess: nothing,
            PlaceReplica: place,
            LaunchProcess: launch,
            Probe: probe,
            TerminateProcess: terminate,
            AwaitDrained: drained,
        },
        journal=journal,
    )
    for name, machine in machines.items():
        runtime.add(name, machine)
        runtime.post(name, ReplicaRequested(at=monotonic_now()))

    def all_in(state: ReplicaState) -> bool:
        return all(machine.state is state for machine in machines.values())

    await wait_until(lambda: all_in(ReplicaState.READY), "both to be ready")
    runtime.post(REPLICAS[0], ProcessExited(at=monotonic_now(), status=-9, log_tail=("killed",)))
    await wait_until(lambda: len(launches) == 3 and all_in(ReplicaState.READY), "the killed one to be back")
    for name in REPLICAS:
        runtime.post(name, DrainRequested(at=monotonic_now(), grace=DurationNs(MILLISECOND)))
    await wait_until(lambda: all_in(ReplicaState.STOPPED), "both to stop")
    await runtime.close()
    return journal.entries


def nothing(name: str, _: Effect) -> None:
    """What was done when the journal was written is not done again, and its timers are in it as events."""


INERT = dict.fromkeys(AnyEffect.__args__, nothing)


def run_virtually(recorded: tuple[JournalEntry, ...]) -> tuple[JournalEntry, ...]:
    journal = Journal()
    runtime = VirtualRuntime(INERT, journal=journal)
    for name in REPLICAS:
        runtime.add(name, make(name))
    for entry in recorded:
        runtime.schedule(entry.machine, entry.event)
    runtime.run(until=recorded[-1].event.at)
    return journal.entries


async def run_live(recorded: tuple[JournalEntry, ...]) -> tuple[JournalEntry, ...]:
    journal = Journal()
    runtime = LiveRuntime(INERT, journal=journal)
    for name in REPLICAS:
        runtime.add(name, make(name))
    for entry in recorded:
        runtime.post(entry.machine, entry.event)
    await runtime.close()
    return journal.entries


@pytest.mark.asyncio
async def test_one_journal_gives_equal_effects_in_all_runtimes() -> None:
    recorded = decode(encode(await record_live()))
    assert {type(effect) for entry in recorded for effect in entry.effects} >= set(AnyEffect.__args__) - {KillProcess}
    assert run_virtually(recorded) == recorded
    assert await run_live(recorded) == recorded
    machines = replay(recorded, make)
    assert [machine.state for machine in machines.values()] == [ReplicaState.STOPPED, ReplicaState.STOPPED]
