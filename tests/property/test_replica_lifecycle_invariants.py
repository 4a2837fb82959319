"""The replica lifecycle in a world that answers in any order, late, twice or not at all, as the contracts allow."""

from collections.abc import Sequence

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pilothouse.model.effects import (
    AwaitDrained,
    Effect,
    KillProcess,
    LaunchProcess,
    PlaceReplica,
    Probe,
    PublishState,
    ReleasePlacement,
    TerminateProcess,
    WakeAt,
)
from pilothouse.model.events import (
    DrainCompleted,
    DrainRequested,
    Event,
    PlacementFailed,
    ProbeAnswered,
    ProcessExited,
    ProcessStarted,
    ReplicaAdopted,
    ReplicaHung,
    ReplicaPlaced,
    ReplicaRequested,
    SuspicionRaised,
    Woke,
)
from pilothouse.model.fleet import Endpoint, ReplicaState
from pilothouse.model.ids import ReplicaId
from pilothouse.model.units import SECOND, DurationNs, MonotonicNs
from pilothouse.policy.replica_lifecycle import LifecycleSettings, ReplicaLifecycle

ENDPOINT = Endpoint(host="127.0.0.1", port=41873)


class World(RuleBasedStateMachine):
    """What the controller and the host do, and what they hold the machine to."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.pids = 0
        self.begin_life()

    def begin_life(self) -> None:
        self.machine = ReplicaLifecycle(ReplicaId("smollm2-0"), LifecycleSettings(crash_loop_after=3))
        self.placing = False
        self.placed = False
        self.launching = False
        self.process: int | None = None
        self.told_to_end = False
        self.placed_too_late = False
        self.probes: list[tuple[int, int]] = []  # token, and which process or endpoint it was sent to
        self.ready_answers = 0  # of the present one
        self.timers: list[WakeAt] = []
        self.drain_watched = False
        self.published = ReplicaState.PENDING

    def give(self, event: Event) -> None:
        was_stopped = self.machine.state is ReplicaState.STOPPED
        effects = self.machine.handle(event)
        if was_stopped:
            assert all(isinstance(effect, ReleasePlacement) for effect in effects), "an effect after Stopped"
        self.carry_out(effects)

    def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case PlaceReplica():
                    assert not self.placing, "placed twice at a time"
                    assert not self.placed, "placed without having given back what it had"
                    self.placing = True
                case LaunchProcess():
                    assert self.process is None, "two processes at a time"
                    assert not self.launching, "two processes at a time"
                    assert self.placed, "launched without a placement"
                    self.launching = True
                case Probe():
                    assert self.machine.state is not ReplicaState.STOPPED, "probes what it has stopped"
                    self.probes.append((effect.token, self.pids))
                case PublishState():
                    self.published = effect.state
                    if effect.state is ReplicaState.READY:
                        assert effect.endpoint is not None
                        assert self.ready_answers >= 2, "ready on the word of something else"
                case AwaitDrained():
                    assert self.published is ReplicaState.DRAINING, "waits for turns that may still be coming"
                    self.drain_watched = True
                case TerminateProcess():
                    assert self.process is not None, "ends a process that there is not"
                    self.told_to_end = True
                case KillProcess():
                    assert self.told_to_end, "killed without having been asked to end"
                case ReleasePlacement():
                    assert self.process is None, "gives back the port of a running process"
                    self.placed_too_late = self.placing
                    self.placing = self.placed = False
                case WakeAt():
                    assert effect.at >= self.now, "a timer in the past"
                    self.timers.append(effect)
                case _:
                    raise AssertionError(f"unknown effect {effect}")

    def another_process(self) -> None:
        self.pids += 1
        self.ready_answers = 0

    def at(self) -> MonotonicNs:
        return MonotonicNs(self.now)

    @rule(duration=strategies.integers(0, 120 * SECOND))
    def time_passes(self, duration: int) -> None:
        self.now += duration

    @precondition(lambda self: self.machine.state not in (ReplicaState.DRAINING, ReplicaState.STOPPED))
    @rule()
    def is_requested(self) -> None:
        self.give(ReplicaRequested(at=self.at()))

    @precondition(lambda self: self.machine.state is ReplicaState.PENDING)
    @rule()
    def is_adopted(self) -> None:
        self.another_process()
        self.process, self.placed = self.pids, True
        self.give(ReplicaAdopted(at=self.at(), pid=self.pids, endpoint=ENDPOINT))

    @precondition(lambda self: self.placing)
    @rule(hosted=strategies.booleans())
    def is_placed(self, hosted: bool) -> None:
        self.placing, self.placed = False, True
        self.another_process()
        self.give(ReplicaPlaced(at=self.at(), endpoint=ENDPOINT if hosted else None))

    @precondition(lambda self: self.placing or self.launching)
    @rule(permanent=strategies.booleans())
    def cannot_be_placed_or_launched(self, permanent: bool) -> None:
        self.placing = self.launching = False
        self.give(PlacementFailed(at=self.at(), code="not_enough_memory", message="", permanent=permanent))

    @precondition(lambda self: self.launching)
    @rule()
    def process_starts(self) -> None:
        self.another_process()
        self.launching, self.process = False, self.pids
        self.give(ProcessStarted(at=self.at(), pid=self.pids, endpoint=ENDPOINT))

    @precondition(lambda self: self.process is not None)
    @rule(status=strategies.sampled_from([None, 0, 1, -9]))
    def process_exits(self, status: int | None) -> None:
        self.process, self.told_to_end = None, False
        self.give(ProcessExited(at=self.at(), status=status, log_tail=()))

    @precondition(lambda self: self.probes)
    @rule(data=strategies.data(), ready=strategies.booleans(), listening=strategies.booleans())
    def probe_is_answered(self, data: strategies.DataObject, ready: bool, listening: bool) -> None:
        self.answer(data.draw(strategies.integers(0, len(self.probes) - 1)), ready, listening)

    @precondition(lambda self: self.probes)
    @rule()
    def latest_probe_succeeds(self) -> None:
        self.answer(-1, True, True)

    def answer(self, which: int, ready: bool, listening: bool) -> None:
        token, process = self.probes.pop(which)
        if process == self.pids:
            self.ready_answers += ready
        self.give(ProbeAnswered(at=self.at(), token=token, ready=ready, listening=listening))

    @precondition(lambda self: self.placed_too_late and self.machine.state is ReplicaState.STOPPED)
    @rule()
    def is_placed_too_late(self) -> None:
        self.placed_too_late, self.placed = False, True
        self.give(ReplicaPlaced(at=self.at()))

    @precondition(lambda self: self.timers)
    @rule(data=strategies.data())
    def timer_fires(self, data: strategies.DataObject) -> None:
        timer = self.timers.pop(data.draw(strategies.integers(0, len(self.timers) - 1)))
        self.now = max(self.now, timer.at)
        self.give(Woke(at=self.at(), token=timer.token))

    @rule()
    def is_suspected(self) -> None:
        self.give(SuspicionRaised(at=self.at(), reason="refused"))

    @rule()
    def hangs(self) -> None:
        self.give(ReplicaHung(at=self.at(), reason="silent"))

    # Seldom, or few lives would get far before their end.
    @rule(grace=strategies.integers(0, 60 * SECOND), chance=strategies.integers(0, 4))
    def is_drained(self, grace: int, chance: int) -> None:
        if chance == 0:
            self.give(DrainRequested(at=self.at(), grace=DurationNs(grace)))

    @precondition(lambda self: self.machine.state is ReplicaState.STOPPED)
    @rule()
    def another_life_begins(self) -> None:
        self.begin_life()

    @precondition(lambda self: self.drain_watched)
    @rule()
    def turns_have_ended(self) -> None:
        self.drain_watched = False
        self.give(DrainCompleted(at=self.at()))

    @invariant()
    def holds(self) -> None:
        self.machine.invariants()

    @invariant()
    def what_is_published_is_so(self) -> None:
        assert self.published is self.machine.state

    @invariant()
    def it_knows_its_process(self) -> None:
        assert self.machine.pid == self.process

    @invariant()
    def stopped_leaves_nothing(self) -> None:
        if self.machine.state is ReplicaState.STOPPED:
            assert self.process is None
            assert not self.launching
            assert not self.placed

    @invariant()
    def it_never_waits_for_nothing(self) -> None:
        """Unless it rests (not begun, stopped, or failed for good), something that is under way moves it on."""
        state = self.machine.state
        at_rest = state in (ReplicaState.PENDING, ReplicaState.STOPPED, ReplicaState.FAILED)
        awaited = self.placing or self.launching or self.process is not None or self.timers or self.probes
        assert at_rest or awaited


World.TestCase.settings = settings(max_examples=100, stateful_step_count=80, deadline=None)
TestReplicaLifecycle = World.TestCase
