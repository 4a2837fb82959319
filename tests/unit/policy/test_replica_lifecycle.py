import itertools
from collections.abc import Callable

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
    WakeAt,
)
from pilothouse.model.events import (
    AnyEvent,
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
from pilothouse.model.units import DurationNs, MonotonicNs, seconds
from pilothouse.policy.machine import InvariantViolation
from pilothouse.policy.replica_lifecycle import TRANSITIONS, LifecycleSettings, ReplicaLifecycle

ENDPOINT = Endpoint(host="127.0.0.1", port=41873)
HOSTED = Endpoint(host="api.example", port=443, tls=True)
SETTINGS = LifecycleSettings()
EVENTS: tuple[type[Event], ...] = AnyEvent.__args__
STATES = tuple(ReplicaState)


class Life:
    """A machine with the little outside world that it needs: a clock, and the tokens of what it asked for."""

    def __init__(self, settings: LifecycleSettings = SETTINGS) -> None:
        self.machine = ReplicaLifecycle(ReplicaId("smollm2-0"), settings)
        self.now = 0.0
        self.effects: tuple[Effect, ...] = ()
        self.timers: list[WakeAt] = []
        self.probe = -1
        self.seen: set[type[Effect]] = set()

    def at(self) -> MonotonicNs:
        return MonotonicNs(seconds(self.now))

    def give(self, event: Event) -> tuple[Effect, ...]:
        self.effects = self.machine.handle(event)
        self.seen.update(self.kinds())
        for effect in self.effects:
            if isinstance(effect, WakeAt):
                self.timers.append(effect)
            if isinstance(effect, Probe):
                self.probe = effect.token
        return self.effects

    def request(self) -> "Life":
        self.give(ReplicaRequested(at=self.at()))
        return self

    def place(self, endpoint: Endpoint | None = None) -> "Life":
        self.give(ReplicaPlaced(at=self.at(), endpoint=endpoint))
        return self

    def start(self, pid: int = 4711) -> "Life":
        self.give(ProcessStarted(at=self.at(), pid=pid, endpoint=ENDPOINT))
        return self

    def wake(self) -> "Life":
        """The last timer that was asked for."""
        timer = self.timers[-1]
        self.now = timer.at / 1e9
        self.give(Woke(at=self.at(), token=timer.token))
        return self

    def answer(self, *, ready: bool = False, listening: bool = True, detail: str = "") -> "Life":
        self.give(ProbeAnswered(at=self.at(), token=self.probe, ready=ready, listening=listening, detail=detail))
        return self

    def exit(self, status: int | None = 1, log_tail: tuple[str, ...] = ()) -> "Life":
        self.give(ProcessExited(at=self.at(), status=status, log_tail=log_tail))
        return self

    def drain(self, grace_s: float = 30) -> "Life":
        self.give(DrainRequested(at=self.at(), grace=DurationNs(seconds(grace_s))))
        return self

    def drained(self) -> "Life":
        self.give(DrainCompleted(at=self.at()))
        return self

    def fail_placement(self, *, permanent: bool = False) -> "Life":
        code = "checksum_mismatch" if permanent else "weights_fetch_failed"
        self.give(PlacementFailed(at=self.at(), code=code, message="the index did not answer", permanent=permanent))
        return self

    def published(self) -> PublishState:
        return [effect for effect in self.effects if isinstance(effect, PublishState)][-1]

    def state(self) -> ReplicaState:
        return self.machine.state

    def did(self) -> tuple[Effect, ...]:
        return self.effects

    def kinds(self) -> list[type[Effect]]:
        return [type(effect) for effect in self.effects]


def starting() -> Life:
    return Life().request().place().start()


def loading() -> Life:
    return starting().wake().answer(detail="503")


def warming() -> Life:
    return loading().wake().answer(ready=True)


def ready() -> Life:
    return warming().answer(ready=True)


def hosted_ready() -> Life:
    return Life().request().place(HOSTED).answer(ready=True).answer(ready=True)


LIVES: dict[ReplicaState, Callable[[], Life]] = {
    ReplicaState.PENDING: Life,
    ReplicaState.PLACING: lambda: Life().request(),
    ReplicaState.STARTING: starting,
    ReplicaState.LOADING: loading,
    ReplicaState.WARMING: warming,
    ReplicaState.READY: ready,
    ReplicaState.DRAINING: lambda: ready().drain(),
    ReplicaState.STOPPED: lambda: Life().drain(),
    ReplicaState.FAILED: lambda: ready().exit(-9),
}


def example(kind: type[Event], life: Life) -> Event:
    at = life.at()
    examples: tuple[Event, ...] = (
        ReplicaRequested(at=at),
        ReplicaPlaced(at=at),
        PlacementFailed(at=at, code="weights_fetch_failed", message="", permanent=False),
        ProcessStarted(at=at, pid=1, endpoint=ENDPOINT),
        ReplicaAdopted(at=at, pid=1, endpoint=ENDPOINT),
        ProcessExited(at=at, status=1, log_tail=()),
        ProbeAnswered(at=at, token=life.probe, ready=True, listening=True),
        SuspicionRaised(at=at, reason="refused"),
        ReplicaHung(at=at, reason="silent"),
        DrainRequested(at=at, grace=DurationNs(1)),
        DrainCompleted(at=at),
        Woke(at=at, token=-1),
    )
    return next(event for event in examples if type(event) is kind)


class TestEveryCombination:
    @pytest.mark.parametrize("state", STATES)
    def test_lives_begin_where_they_say(self, state: ReplicaState) -> None:
        assert LIVES[state]().state() is state

    @pytest.mark.parametrize(("state", "kind"), list(itertools.product(STATES, EVENTS)))
    def test_an_event_follows_the_table_or_is_refused(self, state: ReplicaState, kind: type[Event]) -> None:
        life = LIVES[state]()
        event = example(kind, life)
        before = life.machine.story
        transition = TRANSITIONS.get((state, kind))
        # One that is in the table may still be impossible, such as the end of a process that there is not.
        impossible = {
            (ReplicaState.STARTING, ProcessStarted),
            (ReplicaState.STARTING, PlacementFailed),
            (ReplicaState.DRAINING, ProcessStarted),
            (ReplicaState.DRAINING, PlacementFailed),
            (ReplicaState.FAILED, ProcessExited),
        }
        if transition is None or (state, kind) in impossible:
            with pytest.raises(InvariantViolation, match=r"smollm2-0: .* What happened:"):
                life.give(event)
            assert life.state() is state
            assert life.machine.story == before
        else:
            life.give(event)
            assert life.state() in transition.to
        life.machine.invariants()

    def test_a_life_can_have_every_effect(self) -> None:
        life = ready().drain().drained().wake().exit(-9)
        assert life.seen == set(AnyEffect.__args__)

    def test_a_refusal_tells_the_story(self) -> None:
        life = ready()
        with pytest.raises(InvariantViolation) as refused:
            life.give(ProcessStarted(at=life.at(), pid=2, endpoint=ENDPOINT))
        assert "ProcessStarted cannot happen in Ready" in str(refused.value)
        assert "0.000 s: ReplicaRequested in Pending -> Placing: PublishState, PlaceReplica" in str(refused.value)

    def test_the_story_is_bounded(self) -> None:
        life = ready()
        for _ in range(100):
            life.wake().answer(ready=True)
        assert len(life.machine.story) == 40


class TestBeginning:
    def test_it_is_placed_then_launched_then_probed(self) -> None:
        life = Life().request()
        assert life.did() == (PublishState(state=ReplicaState.PLACING), PlaceReplica())
        life.place()
        assert life.did() == (PublishState(state=ReplicaState.STARTING), LaunchProcess())
        life.start()
        assert life.kinds() == [PublishState, WakeAt, WakeAt]
        assert life.timers[-1].at == MonotonicNs(SETTINGS.probe_first)
        assert life.timers[-2].at == MonotonicNs(SETTINGS.start_timeout)
        assert (life.machine.pid, life.machine.endpoint) == (4711, ENDPOINT)
        life.wake()
        assert life.kinds() == [Probe]

    def test_probes_become_rarer_but_never_rarer_than_the_slowest(self) -> None:
        life = starting()
        gaps = []
        for _ in range(40):
            life.wake()
            before = life.now
            life.answer(listening=False)
            gaps.append(life.timers[-1].at - seconds(before))
        assert gaps[0] == SETTINGS.probe_first
        assert gaps == sorted(gaps)
        assert gaps[1] == round(SETTINGS.probe_first * SETTINGS.probe_growth)
        assert gaps[-1] == SETTINGS.probe_slowest

    def test_two_ready_answers_make_it_ready(self) -> None:
        life = starting().wake().answer(ready=True)
        assert life.state() is ReplicaState.WARMING
        assert life.kinds() == [WakeAt, PublishState, Probe]
        life.answer(ready=True)
        assert life.state() is ReplicaState.READY
        assert life.published().endpoint == ENDPOINT

    def test_a_warming_one_that_is_loading_again_goes_back(self) -> None:
        life = warming().answer(detail="503")
        assert life.state() is ReplicaState.LOADING
        assert life.published().detail == "503"

    def test_a_warming_one_that_does_not_listen_is_asked_again(self) -> None:
        life = warming().answer(listening=False)
        assert life.state() is ReplicaState.WARMING
        assert life.wake().answer(ready=True).state() is ReplicaState.READY

    def test_loading_is_published_again_only_when_it_says_something_else(self) -> None:
        life = loading().wake().answer(detail="503")
        assert life.kinds() == [WakeAt]
        life.wake().answer(detail="401")
        assert life.kinds() == [PublishState, WakeAt]
        assert life.published().detail == "401"
        life.wake().answer(listening=False, detail="refused")
        assert life.published() == PublishState(state=ReplicaState.LOADING, endpoint=ENDPOINT, detail="refused")

    def test_one_that_never_listens_is_ended(self) -> None:
        life = starting()
        life.give(Woke(at=MonotonicNs(SETTINGS.start_timeout), token=life.timers[-2].token))
        assert life.kinds() == [PublishState, TerminateProcess, WakeAt]
        assert life.published().detail == "did not listen within 600 s"
        life.exit(-15)
        assert life.published().detail == (
            "replica_start_failed: did not listen within 600 s; next attempt after 0.5 s"
        )

    def test_one_that_loads_for_ever_is_ended(self) -> None:
        life = starting().wake().answer()
        deadline = [timer for timer in life.timers if timer.at >= SETTINGS.load_timeout][-1]
        life.give(Woke(at=deadline.at, token=deadline.token))
        assert life.published().detail == "was not ready within 1800 s"
        assert life.state() is ReplicaState.FAILED

    def test_the_start_timeout_means_nothing_once_it_listens(self) -> None:
        life = starting()
        start_deadline = life.timers[-2]
        life.wake().answer()
        life.give(Woke(at=start_deadline.at, token=start_deadline.token))
        assert life.did() == ()
        assert life.state() is ReplicaState.LOADING

    def test_an_answer_to_an_earlier_probe_means_nothing(self) -> None:
        life = starting().wake()
        old = life.probe
        life.exit()
        life.wake().place().start().wake()
        life.give(ProbeAnswered(at=life.at(), token=old, ready=True, listening=True))
        assert life.did() == ()
        assert life.state() is ReplicaState.STARTING


class TestReady:
    def test_it_is_probed_at_leisure(self) -> None:
        life = ready()
        before = life.at()
        assert life.timers[-1].at - before == SETTINGS.probe_ready_every
        life.wake().answer(ready=True)
        assert life.kinds() == [WakeAt]

    def test_three_failed_probes_in_a_row_take_it_out(self) -> None:
        life = ready()
        for _ in range(2):
            life.wake().answer(listening=False, detail="timed out")
            assert life.kinds() == [WakeAt]
            assert life.timers[-1].at - life.at() == SETTINGS.probe_again_after
        life.wake().answer(listening=False, detail="timed out")
        assert life.kinds() == [PublishState, TerminateProcess, WakeAt]
        assert life.published().state is ReplicaState.FAILED
        assert life.published().detail == "failed 3 probes in a row: timed out"

    def test_one_that_answers_that_it_is_loading_has_failed_a_probe(self) -> None:
        life = ready()
        for _ in range(3):
            life.wake().answer(detail="503")
        assert life.state() is ReplicaState.FAILED

    def test_failed_probes_that_are_not_in_a_row_do_not(self) -> None:
        life = ready()
        for _ in range(5):
            life.wake().answer(listening=False).wake().answer(listening=False).wake().answer(ready=True)
        assert life.state() is ReplicaState.READY

    def test_the_next_attempt_waits_for_the_process_to_end(self) -> None:
        life = ready()
        for _ in range(3):
            life.wake().answer(listening=False)
        life.wake()
        assert life.kinds() == [WakeAt, KillProcess]
        life.exit(-9, ("out of memory",))
        assert life.kinds() == [ReleasePlacement, PublishState, WakeAt]
        assert life.published().detail == "failed 3 probes in a row: ; next attempt after 0.5 s"
        assert life.published().log_tail == ("out of memory",)
        assert life.wake().kinds() == [PublishState, PlaceReplica]

    def test_one_that_hangs_is_ended_and_started_again(self) -> None:
        life = ready()
        life.give(ReplicaHung(at=life.at(), reason="silent 3 times in a row"))
        assert life.published().detail == "hangs: silent 3 times in a row"
        assert life.kinds() == [PublishState, TerminateProcess, WakeAt]

    def test_a_suspicion_probes_at_once(self) -> None:
        life = ready()
        life.give(SuspicionRaised(at=life.at(), reason="refused"))
        assert life.kinds() == [Probe]
        life.answer(ready=True)
        assert life.timers[-1].at - life.at() == SETTINGS.probe_ready_every

    def test_suspicions_do_not_pile_up_probes(self) -> None:
        life = ready()
        for _ in range(3):
            life.give(SuspicionRaised(at=life.at(), reason="refused"))
        assert life.did() == ()

    def test_suspicions_of_one_moment_are_not_three_failures(self) -> None:
        life = ready()
        life.give(SuspicionRaised(at=life.at(), reason="refused"))
        life.answer(listening=False)
        life.give(SuspicionRaised(at=life.at(), reason="refused"))
        assert life.did() == ()

    def test_the_timer_a_suspicion_has_overtaken_means_nothing(self) -> None:
        life = ready()
        overtaken = life.timers[-1]
        life.give(SuspicionRaised(at=life.at(), reason="refused"))
        life.answer(ready=True)
        life.give(Woke(at=overtaken.at, token=overtaken.token))
        assert life.did() == ()


class TestFailing:
    def test_a_killed_one_comes_back(self) -> None:
        life = ready().exit(-9, ("last words",))
        assert life.kinds() == [ReleasePlacement, PublishState, WakeAt]
        assert life.published() == PublishState(
            state=ReplicaState.FAILED, detail="killed by signal 9; next attempt after 0.5 s", log_tail=("last words",)
        )
        life.wake()
        assert life.kinds() == [PublishState, PlaceReplica]
        assert life.machine.restarts == 1

    def test_attempts_wait_longer_until_it_is_a_crash_loop(self) -> None:
        life = starting()
        waits = []
        for _ in range(6):
            life.exit(1, ("no such file",))
            waits.append((life.timers[-1].at - life.at()) / 1e9)
            details = life.published()
            life.wake().place().start()
        assert waits == [0.5, 1, 2, 4, 60, 60]
        assert details.detail == (
            "replica_crash_loop: exited with status 1, failure 6 in a row; next attempt after 60 s"
        )
        assert details.log_tail == ("no such file",)

    def test_the_wait_never_passes_the_cap(self) -> None:
        life = Life(LifecycleSettings(crash_loop_after=20)).request().place().start()
        for _ in range(12):
            life.exit()
            assert life.timers[-1].at - life.at() <= SETTINGS.backoff_cap
            life.wake().place().start()

    def test_being_ready_for_a_while_forgets_failures(self) -> None:
        life = starting().exit().wake().place().start().wake().answer(ready=True).answer(ready=True)
        assert life.machine.failures == 1
        stability = life.timers[-2]
        life.give(Woke(at=stability.at, token=stability.token))
        assert life.machine.failures == 0
        assert life.state() is ReplicaState.READY

    def test_being_ready_for_a_moment_does_not(self) -> None:
        life = starting()
        for _ in range(5):
            life.wake().answer(ready=True).answer(ready=True).exit()
            detail = life.published().detail
            life.wake().place().start()
        assert detail.startswith("replica_crash_loop")

    def test_an_adopted_process_has_no_exit_status(self) -> None:
        life = Life()
        life.give(ReplicaAdopted(at=life.at(), pid=5, endpoint=ENDPOINT))
        life.exit(None)
        assert life.published().detail == "the process ended; next attempt after 0.5 s"

    def test_a_placement_that_may_succeed_later_is_tried_again(self) -> None:
        life = Life().request().fail_placement()
        assert life.kinds() == [ReleasePlacement, PublishState, WakeAt]
        assert life.published().detail == ("weights_fetch_failed: the index did not answer; next attempt after 0.5 s")
        assert life.wake().kinds() == [PublishState, PlaceReplica]

    def test_a_placement_that_only_a_person_can_mend_is_not(self) -> None:
        life = Life().request().fail_placement(permanent=True)
        assert life.kinds() == [ReleasePlacement, PublishState]
        assert life.published().detail == "checksum_mismatch: the index did not answer"

    def test_a_launch_can_fail_as_well(self) -> None:
        life = Life().request().place().fail_placement()
        assert life.state() is ReplicaState.FAILED
        assert life.wake().state() is ReplicaState.PLACING

    def test_asking_again_ends_the_wait_and_forgets_failures(self) -> None:
        life = Life().request().fail_placement(permanent=True).request()
        assert life.kinds() == [PublishState, PlaceReplica]
        assert (life.machine.failures, life.machine.restarts) == (0, 1)

    def test_asking_again_never_makes_two_processes(self) -> None:
        life = ready()
        for _ in range(3):
            life.wake().answer(listening=False)
        life.request()
        assert life.did() == ()
        life.exit()
        assert life.wake().kinds() == [PublishState, PlaceReplica]

    def test_the_timer_of_an_ended_wait_means_nothing(self) -> None:
        life = starting().exit()
        retry = life.timers[-1]
        life.request()
        life.give(Woke(at=retry.at, token=retry.token))
        assert life.did() == ()


class TestAdoption:
    def test_it_goes_straight_to_probing(self) -> None:
        life = Life()
        life.give(ReplicaAdopted(at=life.at(), pid=5, endpoint=ENDPOINT))
        assert life.kinds() == [PublishState, WakeAt, Probe]
        assert life.state() is ReplicaState.LOADING
        life.answer(ready=True).answer(ready=True)
        assert life.state() is ReplicaState.READY

    def test_its_turns_are_waited_for_even_if_it_never_became_ready(self) -> None:
        life = Life()
        life.give(ReplicaAdopted(at=life.at(), pid=5, endpoint=ENDPOINT))
        life.drain()
        assert AwaitDrained in life.kinds()


class TestDraining:
    def test_turns_end_then_the_process(self) -> None:
        life = ready().drain(30)
        assert life.kinds() == [PublishState, AwaitDrained, WakeAt]
        assert life.published().state is ReplicaState.DRAINING
        life.drained()
        assert life.kinds() == [TerminateProcess, WakeAt]
        life.exit(0)
        assert life.did() == (ReleasePlacement(), PublishState(state=ReplicaState.STOPPED))

    def test_turns_that_outlast_the_grace_are_cut(self) -> None:
        life = ready().drain(30).wake()
        assert life.kinds() == [TerminateProcess, WakeAt]
        assert life.drained().did() == ()

    def test_a_process_that_does_not_end_is_killed_and_again(self) -> None:
        life = ready().drain().drained()
        asked_at = life.at()
        life.wake()
        assert life.at() - asked_at == SETTINGS.kill_timeout
        assert life.kinds() == [WakeAt, KillProcess]
        assert life.wake().kinds() == [WakeAt, KillProcess]
        assert life.exit(-9).state() is ReplicaState.STOPPED

    def test_a_shorter_grace_holds(self) -> None:
        life = ready().drain(300)
        long = life.timers[-1]
        life.drain(1)
        assert life.kinds() == [WakeAt]
        life.give(Woke(at=long.at, token=long.token))
        assert life.did() == ()
        assert life.wake().kinds() == [TerminateProcess, WakeAt]

    def test_a_longer_one_does_not(self) -> None:
        assert ready().drain(1).drain(300).did() == ()

    def test_one_without_turns_ends_at_once(self) -> None:
        for life in (starting(), loading(), warming()):
            life.drain()
            assert life.kinds() == [PublishState, TerminateProcess, WakeAt]

    def test_a_launch_that_is_under_way_is_waited_for(self) -> None:
        life = Life().request().place().drain()
        assert life.kinds() == [PublishState]
        life.start()
        assert life.kinds() == [TerminateProcess, WakeAt]
        assert life.exit(-15).state() is ReplicaState.STOPPED

    def test_a_launch_that_fails_meanwhile_ends_it(self) -> None:
        life = Life().request().place().drain().fail_placement()
        assert life.kinds() == [ReleasePlacement, PublishState]
        assert life.state() is ReplicaState.STOPPED

    def test_one_that_is_being_placed_stops_and_a_late_placement_is_given_back(self) -> None:
        life = Life().request().drain()
        assert life.did() == (ReleasePlacement(), PublishState(state=ReplicaState.STOPPED))
        assert life.place().did() == (ReleasePlacement(),)

    def test_one_whose_failed_process_is_ending_waits_for_that(self) -> None:
        life = ready()
        for _ in range(3):
            life.wake().answer(listening=False)
        life.drain()
        assert life.kinds() == [PublishState]
        assert life.wake().kinds() == [WakeAt, KillProcess]
        assert life.exit(-9).state() is ReplicaState.STOPPED

    def test_one_between_attempts_stops_at_once(self) -> None:
        life = starting().exit()
        retry = life.timers[-1]
        assert life.drain().state() is ReplicaState.STOPPED
        life.give(Woke(at=retry.at, token=retry.token))
        assert life.did() == ()

    def test_a_process_that_ends_by_itself_is_the_end(self) -> None:
        assert ready().drain().exit(0).state() is ReplicaState.STOPPED


class TestHosted:
    def test_it_has_no_process(self) -> None:
        life = Life().request().place(HOSTED)
        assert life.kinds() == [PublishState, Probe]
        life.answer(ready=True).answer(ready=True)
        assert life.published() == PublishState(state=ReplicaState.READY, endpoint=HOSTED)
        assert life.machine.pid is None

    def test_one_that_does_not_answer_is_out_until_it_does(self) -> None:
        life = hosted_ready()
        for _ in range(3):
            life.wake().answer(listening=False, detail="no route to host")
        assert life.state() is ReplicaState.LOADING
        assert life.published().detail == "failed 3 probes in a row: no route to host"
        assert TerminateProcess not in life.kinds()
        for _ in range(100):
            life.wake().answer(listening=False)
        assert life.wake().answer(ready=True).answer(ready=True).state() is ReplicaState.READY

    def test_its_stability_timer_does_not_end_its_loading(self) -> None:
        life = hosted_ready()
        stability = life.timers[-2]
        for _ in range(3):
            life.wake().answer(listening=False)
        life.give(Woke(at=stability.at, token=stability.token))
        assert life.did() == ()

    def test_it_drains_without_a_process_to_end(self) -> None:
        life = hosted_ready().drain()
        assert life.kinds() == [PublishState, AwaitDrained, WakeAt]
        life.drained()
        assert life.did() == (ReleasePlacement(), PublishState(state=ReplicaState.STOPPED))
        assert hosted_ready().drain().wake().state() is ReplicaState.STOPPED

    def test_it_has_no_process_that_could_end(self) -> None:
        with pytest.raises(InvariantViolation, match="no process"):
            hosted_ready().exit()
        with pytest.raises(InvariantViolation, match="no process"):
            hosted_ready().drain().exit()


class TestInvariants:
    @pytest.mark.parametrize(
        ("state", "field", "value", "problem"),
        [
            (ReplicaState.READY, "_endpoint", None, "a replica that listens has an endpoint"),
            (ReplicaState.READY, "_launching", True, "one process at a time"),
            (ReplicaState.READY, "_probe", 7, "a probed replica has one next probe"),
            (ReplicaState.READY, "_next_probe", None, "a probed replica has one next probe"),
            (ReplicaState.READY, "_probe_failures", 3, "has not failed too many probes"),
            (ReplicaState.READY, "_ending", True, "only a process can be ending"),
            (ReplicaState.PLACING, "_launching", True, "a launch is under way only"),
            (ReplicaState.STARTING, "_pid", None, "Starting has a process or launches one"),
            (ReplicaState.DRAINING, "_deadline", None, "what drains waits for a timer"),
            (ReplicaState.DRAINING, "_probe", 7, "a replica that is not probed has none"),
            (ReplicaState.PLACING, "_deadline", 7, "wait for no timer"),
        ],
    )
    def test_a_state_that_cannot_be_is_found(
        self, state: ReplicaState, field: str, value: object, problem: str
    ) -> None:
        life = LIVES[state]()
        setattr(life.machine, field, value)
        with pytest.raises(InvariantViolation, match=problem):
            life.machine.invariants()

    def test_a_step_that_the_table_does_not_have_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        life = ready()
        monkeypatch.setattr(ReplicaLifecycle, "_send_probe", lambda self: self._enter(ReplicaState.PENDING))
        with pytest.raises(InvariantViolation, match="led from Ready to Pending, which the table does not have"):
            life.give(SuspicionRaised(at=life.at(), reason="refused"))
