"""The life of one replica: what happens next, given what has happened.

    Pending > Placing > Starting > Loading > Warming > Ready > Draining > Stopped

and Failed, where a replica waits for its next attempt. `TRANSITIONS` has every step that exists; docs/concepts/
replica-lifecycle.md tells the story and shows the diagram that is drawn from it. A machine is one life: Stopped is
final, and who wants the replica again makes a new machine.

A hosted engine's replica has no process: it is placed with its endpoint known, is probed like any other, and when it
stops answering it goes back to Loading, since there is nothing to restart.
"""

from collections import deque
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

import msgspec

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
from pilothouse.model.units import MILLISECOND, SECOND, DurationNs, MonotonicNs, after
from pilothouse.policy.machine import InvariantViolation, Transition, Transitions

_STORY_LINES = 40  # several whole attempts of a crash loop


class LifecycleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The patience of a replica's life. Durations in nanoseconds."""

    backoff_first: DurationNs = DurationNs(500 * MILLISECOND)
    backoff_cap: DurationNs = DurationNs(60 * SECOND)
    crash_loop_after: int = 5  # failures in a row; with doubling from 0.5 s that is 7.5 s of waiting
    stable_after: DurationNs = DurationNs(60 * SECOND)  # Ready for as long as the longest wait: failures are forgotten
    start_timeout: DurationNs = DurationNs(600 * SECOND)  # vLLM listens only once it has loaded and captured graphs
    load_timeout: DurationNs = DurationNs(1800 * SECOND)  # hundreds of GB from a network file system
    kill_timeout: DurationNs = DurationNs(10 * SECOND)  # as `docker stop`
    probe_first: DurationNs = DurationNs(50 * MILLISECOND)
    probe_growth: float = 1.25  # readiness is seen at most a quarter later than it came
    probe_slowest: DurationNs = DurationNs(1 * SECOND)
    probe_ready_every: DurationNs = DurationNs(5 * SECOND)
    probe_again_after: DurationNs = DurationNs(1 * SECOND)  # once a Ready replica has failed a probe
    unready_after: int = 3  # failed probes in a row, as Kubernetes' failureThreshold


_PENDING, _PLACING, _STARTING, _LOADING, _WARMING, _READY, _DRAINING, _STOPPED, _FAILED = ReplicaState


class ReplicaLifecycle:
    """The machine of one replica. Give it events with `handle`, do what it returns; read it, never change it."""

    def __init__(self, replica: ReplicaId, settings: LifecycleSettings | None = None) -> None:
        self.replica = replica
        self._settings = settings or LifecycleSettings()
        self._state = _PENDING
        self._endpoint: Endpoint | None = None
        self._pid: int | None = None
        self._launching = False
        self._may_have_turns = False
        self._ending = False
        self._failures = 0
        self._restarts = 0
        self._probe_failures = 0
        self._probe_delay = self._settings.probe_first
        self._cause = ""
        self._detail = ""
        self._drain_ends_at: MonotonicNs | None = None
        self._last_token = 0
        self._deadline: int | None = None  # token of the state's own timer: time-out, grace, backoff or stability
        self._next_probe: int | None = None  # token of the timer of the next probe
        self._probe: int | None = None  # token of the probe that is under way
        self._effects: list[Effect] = []
        self._story: deque[str] = deque(maxlen=_STORY_LINES)

    @property
    def state(self) -> ReplicaState:
        """Where it is in its life."""
        return self._state

    @property
    def endpoint(self) -> Endpoint | None:
        """Where its engine listens, while there is one."""
        return self._endpoint

    @property
    def pid(self) -> int | None:
        """The process of its engine, while there is one."""
        return self._pid

    @property
    def restarts(self) -> int:
        """Attempts after the first."""
        return self._restarts

    @property
    def failures(self) -> int:
        """Failed attempts in a row."""
        return self._failures

    @property
    def story(self) -> tuple[str, ...]:
        """The last events and what they led to, oldest first, one line each."""
        return tuple(self._story)

    def handle(self, event: Event) -> tuple[Effect, ...]:
        """What to do now that this has happened, in this order.

        Raises:
            InvariantViolation: the event cannot happen here; nothing has changed. It is a defect of the caller.
        """
        before, name = self._state, type(event).__name__
        transition = TRANSITIONS.get((before, type(event)))
        if transition is None:
            raise self._violation(f"{name} cannot happen in {before}")
        transition.handler(self, event)
        effects, self._effects = tuple(self._effects), []
        done = ", ".join(type(effect).__name__ for effect in effects) or "nothing"
        self._story.append(f"{event.at / SECOND:.3f} s: {name} in {before} -> {self._state}: {done}")
        if self._state not in transition.to:
            raise self._violation(f"{name} led from {before} to {self._state}, which the table does not have")
        self.invariants()
        return effects

    def invariants(self) -> None:
        """Raise InvariantViolation unless everything that must hold does."""
        state, process = self._state, self._pid is not None
        listens = state in (_LOADING, _WARMING, _READY)
        probed = listens or (state is _STARTING and process)
        checks = {
            "a replica that listens has an endpoint": not listens or self._endpoint is not None,
            "a process has an endpoint": not process or self._endpoint is not None,
            "one process at a time": not (process and self._launching),
            "a launch is under way only in Starting or Draining": not self._launching
            or state in (_STARTING, _DRAINING),
            "Starting has a process or launches one": state is not _STARTING or process or self._launching,
            "Pending, Placing and Stopped have no process": not (process and state in (_PENDING, _PLACING, _STOPPED)),
            "only a process can be ending, in Draining or Failed": not self._ending
            or (process and state in (_DRAINING, _FAILED)),
            "a failed replica's process is ending": state is not _FAILED or process == self._ending,
            "a probed replica has one next probe": not probed or (self._probe is None) != (self._next_probe is None),
            "a replica that is not probed has none": probed or self._probe is self._next_probe is None,
            "a Ready replica has not failed too many probes": state is not _READY
            or self._probe_failures < self._settings.unready_after,
            "what drains waits for a timer": state is not _DRAINING or self._launching or self._deadline is not None,
            "Pending, Placing and Stopped wait for no timer": state not in (_PENDING, _PLACING, _STOPPED)
            or self._deadline is None,
        }
        for condition, holds in checks.items():
            self._require(holds, f"does not hold: {condition}")

    # Beginning

    def _on_requested(self, _: ReplicaRequested) -> None:
        self._enter(_PLACING)
        self._do(PlaceReplica())

    def _on_adopted(self, event: ReplicaAdopted) -> None:
        self._pid, self._endpoint = event.pid, event.endpoint
        self._may_have_turns = True
        self._enter(_LOADING, "adopted")
        self._arm_deadline(event.at, self._settings.load_timeout)
        self._send_probe()

    def _on_placed(self, event: ReplicaPlaced) -> None:
        if event.endpoint is None:
            self._launching = True
            self._enter(_STARTING)
            self._do(LaunchProcess())
            return
        self._endpoint = event.endpoint
        self._enter(_LOADING)
        self._send_probe()

    def _on_started(self, event: ProcessStarted) -> None:
        self._note_process(event)
        self._enter(_STARTING, "waiting for the engine to listen")
        self._arm_deadline(event.at, self._settings.start_timeout)
        self._schedule_probe(event.at, self._settings.probe_first)

    # Probing

    def _on_probe_while_beginning(self, event: ProbeAnswered) -> None:
        if not self._is_current(event):
            return
        listening = event.listening or event.ready
        if self._state is _STARTING and listening:
            self._arm_deadline(event.at, self._settings.load_timeout)
        if not event.ready:
            loading = listening or self._state is _LOADING
            if loading and (self._state, self._detail) != (_LOADING, event.detail):
                self._enter(_LOADING, event.detail)
            self._wait_for_next_probe(event.at)
        elif self._state is _WARMING:
            self._become_ready(event.at)
        else:
            # One answer may come from a server that is about to swap its loading page for the model: ask again.
            self._enter(_WARMING)
            self._send_probe()

    def _become_ready(self, at: MonotonicNs) -> None:
        self._may_have_turns = True
        self._probe_failures = 0
        self._probe_delay = self._settings.probe_first
        self._enter(_READY)
        self._arm_deadline(at, self._settings.stable_after)
        self._schedule_probe(at, self._settings.probe_ready_every)

    def _on_probe_while_ready(self, event: ProbeAnswered) -> None:
        if not self._is_current(event):
            return
        if event.ready:
            self._probe_failures = 0
            self._schedule_probe(event.at, self._settings.probe_ready_every)
            return
        self._probe_failures += 1
        if self._probe_failures < self._settings.unready_after:
            self._schedule_probe(event.at, self._settings.probe_again_after)
            return
        cause = f"failed {self._probe_failures} probes in a row: {event.detail}"
        if self._pid is not None:
            self._fail(event.at, cause)
        else:
            self._deadline = None
            self._enter(_LOADING, cause)
            self._wait_for_next_probe(event.at)

    def _on_suspicion(self, _: SuspicionRaised) -> None:
        # A replica that has failed a probe is looked at often enough: three suspicions are not three failures.
        if self._next_probe is not None and not self._probe_failures:
            self._send_probe()

    def _on_hung(self, event: ReplicaHung) -> None:
        # An engine that somebody else runs cannot be started again; the gateway sends it nothing for a while.
        if self._pid is not None:
            self._fail(event.at, f"hangs: {event.reason}")

    # Time

    def _on_woke(self, event: Woke) -> None:
        if event.token == self._next_probe:
            self._send_probe()
        elif event.token == self._deadline:
            self._deadline = None
            self._on_deadline(event.at)

    def _on_deadline(self, at: MonotonicNs) -> None:
        if self._state is _FAILED and not self._ending:
            self._restarts += 1
            self._enter(_PLACING)
            self._do(PlaceReplica())
        elif self._ending:
            self._arm_deadline(at, self._settings.kill_timeout)
            self._do(KillProcess())
        elif self._state is _DRAINING:
            self._finish_drain(at)
        elif self._state is _READY:
            self._failures = 0
        elif self._state is _STARTING:
            self._fail(at, f"did not listen within {_text(self._settings.start_timeout)}")
        else:
            self._fail(at, f"was not ready within {_text(self._settings.load_timeout)}")

    # Failing

    def _on_placement_failed(self, event: PlacementFailed) -> None:
        self._require(self._pid is None, "no launch is under way that could fail")
        self._launching = False
        self._failures += 1
        self._do(ReleasePlacement())
        cause = f"{event.code}: {event.message}"
        if event.permanent:
            self._enter(_FAILED, cause)
        else:
            self._wait_for_next_attempt(event.at, cause, ())

    def _fail(self, at: MonotonicNs, cause: str) -> None:
        """Take it out and end its process; the next attempt is scheduled when that has ended."""
        self._cause = cause
        self._enter(_FAILED, cause)
        self._end_process(at)

    def _on_exited(self, event: ProcessExited) -> None:
        self._require(self._pid is not None, "there is no process that could exit")
        cause = self._cause if self._state is _FAILED else _exit_text(event.status)
        self._failures += 1
        if self._failures >= self._settings.crash_loop_after:
            cause = f"replica_crash_loop: {cause}, failure {self._failures} in a row"
        elif not self._may_have_turns:
            cause = f"replica_start_failed: {cause}"
        self._forget_process()
        self._do(ReleasePlacement())
        self._wait_for_next_attempt(event.at, cause, event.log_tail)

    def _wait_for_next_attempt(self, at: MonotonicNs, cause: str, log_tail: tuple[str, ...]) -> None:
        delay = self._backoff()
        self._enter(_FAILED, f"{cause}; next attempt after {_text(delay)}", log_tail)
        self._arm_deadline(at, delay)

    def _backoff(self) -> DurationNs:
        settings = self._settings
        if self._failures >= settings.crash_loop_after:
            return settings.backoff_cap
        return DurationNs(min(settings.backoff_first << max(0, self._failures - 1), settings.backoff_cap))

    def _on_requested_again(self, event: ReplicaRequested) -> None:
        self._failures = 0
        if not self._ending:
            self._deadline = None
            self._restarts += 1
            self._on_requested(event)

    # Ending

    def _on_drain_before_process(self, _: DrainRequested) -> None:
        self._deadline = None
        self._do(ReleasePlacement())
        self._enter(_STOPPED)

    def _on_drain(self, event: DrainRequested) -> None:
        self._stop_probing()
        self._deadline = None
        if self._may_have_turns or (self._pid is None and not self._launching):
            self._enter(_DRAINING, "waiting for running turns to end")
            self._do(AwaitDrained())
            self._arm_drain(event)
            return
        self._enter(_DRAINING)
        if self._pid is not None:
            self._end_process(event.at)

    def _on_drain_while_failed(self, event: DrainRequested) -> None:
        if self._ending:
            self._enter(_DRAINING, self._cause)
        else:
            self._on_drain_before_process(event)

    def _on_drain_again(self, event: DrainRequested) -> None:
        ends_at = self._drain_ends_at
        if ends_at is not None and after(event.at, event.grace) < ends_at:
            self._arm_drain(event)

    def _arm_drain(self, event: DrainRequested) -> None:
        self._drain_ends_at = after(event.at, event.grace)
        self._arm_deadline(event.at, event.grace)

    def _on_drained(self, event: DrainCompleted) -> None:
        if self._drain_ends_at is not None:
            self._finish_drain(event.at)

    def _finish_drain(self, at: MonotonicNs) -> None:
        self._drain_ends_at = None
        if self._pid is not None:
            self._end_process(at)
        else:
            self._stop()

    def _on_started_while_draining(self, event: ProcessStarted) -> None:
        self._note_process(event)
        self._end_process(event.at)

    def _on_launch_failed_while_draining(self, _: PlacementFailed) -> None:
        self._require(self._launching, "no launch is under way that could fail")
        self._launching = False
        self._stop()

    def _on_exited_while_draining(self, _: ProcessExited) -> None:
        self._require(self._pid is not None, "there is no process that could exit")
        self._drain_ends_at = None
        self._stop()

    def _stop(self) -> None:
        self._forget_process()
        self._do(ReleasePlacement())
        self._enter(_STOPPED)

    def _on_placed_too_late(self, _: ReplicaPlaced) -> None:
        self._do(ReleasePlacement())

    def _ignore(self, _: Event) -> None:
        pass

    # What the handlers are made of

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _enter(self, state: ReplicaState, detail: str = "", log_tail: tuple[str, ...] = ()) -> None:
        self._state, self._detail = state, detail
        self._do(PublishState(state=state, endpoint=self._endpoint, detail=detail, log_tail=log_tail))

    def _token(self) -> int:
        self._last_token += 1
        return self._last_token

    def _arm_deadline(self, at: MonotonicNs, duration: DurationNs) -> None:
        self._deadline = self._token()
        self._do(WakeAt(at=after(at, duration), token=self._deadline))

    def _schedule_probe(self, at: MonotonicNs, delay: DurationNs) -> None:
        self._next_probe = self._token()
        self._do(WakeAt(at=after(at, delay), token=self._next_probe))

    def _wait_for_next_probe(self, at: MonotonicNs) -> None:
        self._schedule_probe(at, self._probe_delay)
        grown = round(self._probe_delay * self._settings.probe_growth)
        self._probe_delay = DurationNs(min(grown, self._settings.probe_slowest))

    def _send_probe(self) -> None:
        self._next_probe = None
        self._probe = self._token()
        self._do(Probe(token=self._probe))

    def _is_current(self, event: ProbeAnswered) -> bool:
        """Whether this answers the probe under way; if so, it no longer is. Others are from an earlier process."""
        if event.token != self._probe:
            return False
        self._probe = None
        return True

    def _stop_probing(self) -> None:
        self._probe = self._next_probe = None

    def _note_process(self, event: ProcessStarted) -> None:
        self._require(self._launching, "no launch is under way that could have started a process")
        self._launching = False
        self._pid, self._endpoint = event.pid, event.endpoint

    def _end_process(self, at: MonotonicNs) -> None:
        self._stop_probing()
        self._ending = True
        self._do(TerminateProcess())
        self._arm_deadline(at, self._settings.kill_timeout)

    def _forget_process(self) -> None:
        self._stop_probing()
        self._pid = self._endpoint = self._deadline = None
        self._ending = self._may_have_turns = False
        self._probe_delay = self._settings.probe_first
        self._probe_failures = 0

    def _require(self, holds: bool, problem: str) -> None:
        if not holds:
            raise self._violation(problem)

    def _violation(self, problem: str) -> InvariantViolation:
        return InvariantViolation(self.replica, problem, self.story)


def _exit_text(status: int | None) -> str:
    if status is None:
        return "the process ended"
    return f"killed by signal {-status}" if status < 0 else f"exited with status {status}"


def _text(duration: DurationNs) -> str:
    return f"{duration / SECOND:g} s"


def _transitions() -> Transitions:
    m = ReplicaLifecycle
    begins = (_STARTING, _LOADING, _WARMING)
    table: dict[tuple[str, type[Event]], Transition] = {}

    def on(
        state: ReplicaState, event: type[Event], handler: Callable[[ReplicaLifecycle, Any], None], *to: ReplicaState
    ) -> None:
        table[state, event] = Transition(handler=handler, to=to or (state,))

    on(_PENDING, ReplicaRequested, m._on_requested, _PLACING)
    on(_PENDING, ReplicaAdopted, m._on_adopted, _LOADING)
    on(_PENDING, DrainRequested, m._on_drain_before_process, _STOPPED)

    on(_PLACING, ReplicaPlaced, m._on_placed, _STARTING, _LOADING)
    on(_PLACING, PlacementFailed, m._on_placement_failed, _FAILED)
    on(_PLACING, DrainRequested, m._on_drain_before_process, _STOPPED)

    on(_STARTING, ProcessStarted, m._on_started)
    on(_STARTING, PlacementFailed, m._on_placement_failed, _FAILED)
    on(_STARTING, ProbeAnswered, m._on_probe_while_beginning, _STARTING, _LOADING, _WARMING)
    on(_LOADING, ProbeAnswered, m._on_probe_while_beginning, _LOADING, _WARMING)
    on(_WARMING, ProbeAnswered, m._on_probe_while_beginning, _WARMING, _LOADING, _READY)
    for state in begins:
        on(state, Woke, m._on_woke, state, _FAILED)
        on(state, ProcessExited, m._on_exited, _FAILED)
        on(state, DrainRequested, m._on_drain, _DRAINING)

    on(_READY, ProbeAnswered, m._on_probe_while_ready, _READY, _FAILED, _LOADING)
    on(_READY, SuspicionRaised, m._on_suspicion)
    on(_READY, ReplicaHung, m._on_hung, _READY, _FAILED)
    on(_READY, Woke, m._on_woke)
    on(_READY, ProcessExited, m._on_exited, _FAILED)
    on(_READY, DrainRequested, m._on_drain, _DRAINING)

    on(_DRAINING, DrainRequested, m._on_drain_again)
    on(_DRAINING, DrainCompleted, m._on_drained, _DRAINING, _STOPPED)
    on(_DRAINING, Woke, m._on_woke, _DRAINING, _STOPPED)
    on(_DRAINING, ProcessStarted, m._on_started_while_draining)
    on(_DRAINING, PlacementFailed, m._on_launch_failed_while_draining, _STOPPED)
    on(_DRAINING, ProcessExited, m._on_exited_while_draining, _STOPPED)

    on(_FAILED, Woke, m._on_woke, _FAILED, _PLACING)
    on(_FAILED, ProcessExited, m._on_exited)
    on(_FAILED, ReplicaRequested, m._on_requested_again, _FAILED, _PLACING)
    on(_FAILED, DrainRequested, m._on_drain_while_failed, _STOPPED, _DRAINING)

    on(_STOPPED, ReplicaPlaced, m._on_placed_too_late)

    # What comes late or says nothing new, by no fault of anybody: a timer that was set before, an answer to a probe
    # of an earlier process, a suspicion of a worker that lags behind, a request for what is on its way already.
    for state in (_PENDING, _PLACING, _STOPPED):
        on(state, Woke, m._ignore)
    for state in (_PLACING, _DRAINING, _FAILED, _STOPPED):
        on(state, ProbeAnswered, m._ignore)
    for state in ReplicaState:
        if state is not _READY:
            on(state, SuspicionRaised, m._ignore)
            on(state, ReplicaHung, m._ignore)
    for state in (_PLACING, *begins, _READY):
        on(state, ReplicaRequested, m._ignore)
    on(_STOPPED, DrainRequested, m._ignore)
    on(_STOPPED, DrainCompleted, m._ignore)
    on(_STOPPED, PlacementFailed, m._ignore)
    return MappingProxyType(table)


TRANSITIONS: Final = _transitions()
"""Every step there is, by state and kind of event. What is not in here cannot happen: the machine raises."""
