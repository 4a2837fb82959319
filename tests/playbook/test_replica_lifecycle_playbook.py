"""Whole lives as scripts: every event, and every effect it has."""

from pilothouse.model.effects import (
    AwaitDrained,
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
    PlacementFailed,
    ProbeAnswered,
    ProcessExited,
    ProcessStarted,
    ReplicaAdopted,
    ReplicaPlaced,
    ReplicaRequested,
    SuspicionRaised,
    Woke,
)
from pilothouse.model.fleet import Endpoint, ReplicaState
from pilothouse.model.ids import ReplicaId
from pilothouse.model.units import DurationNs, MonotonicNs, seconds
from pilothouse.policy.replica_lifecycle import ReplicaLifecycle
from pilothouse.testing import Matching, Playbook

LOCAL = Endpoint(host="127.0.0.1", port=41873)
HOSTED = Endpoint(host="api.example", port=443, tls=True)


def at(s: float) -> MonotonicNs:
    return MonotonicNs(seconds(s))


def grace(s: float) -> DurationNs:
    return seconds(s)


def machine() -> ReplicaLifecycle:
    return ReplicaLifecycle(ReplicaId("smollm2-0"))


def test_from_the_fleet_file_to_the_end() -> None:
    with Playbook(machine()) as play:
        play.given(ReplicaRequested(at=at(0)))
        play.expect(PublishState(state=ReplicaState.PLACING), PlaceReplica())
        play.given(ReplicaPlaced(at=at(0.2)))
        play.expect(PublishState(state=ReplicaState.STARTING), LaunchProcess())
        play.given(ProcessStarted(at=at(0.25), pid=4711, endpoint=LOCAL))
        play.expect(
            PublishState(state=ReplicaState.STARTING, endpoint=LOCAL, detail="waiting for the engine to listen"),
            WakeAt(at=at(600.25), token=1),
            WakeAt(at=at(0.3), token=2),
        )
        play.given(Woke(at=at(0.3), token=2)).expect(Probe(token=3))
        play.given(ProbeAnswered(at=at(0.3), token=3, ready=False, listening=False, detail="connection refused"))
        play.expect(WakeAt(at=at(0.35), token=4))
        play.given(Woke(at=at(0.35), token=4)).expect(Probe(token=5))
        play.given(ProbeAnswered(at=at(0.36), token=5, ready=False, listening=True, detail="503"))
        play.expect(
            WakeAt(at=at(1800.36), token=6),
            PublishState(state=ReplicaState.LOADING, endpoint=LOCAL, detail="503"),
            WakeAt(at=at(0.4225), token=7),
        )
        play.given(Woke(at=at(0.4225), token=7)).expect(Probe(token=8))
        play.given(ProbeAnswered(at=at(0.43), token=8, ready=True, listening=True))
        play.expect(PublishState(state=ReplicaState.WARMING, endpoint=LOCAL), Probe(token=9))
        play.given(ProbeAnswered(at=at(0.44), token=9, ready=True, listening=True))
        play.expect(
            PublishState(state=ReplicaState.READY, endpoint=LOCAL),
            WakeAt(at=at(60.44), token=10),
            WakeAt(at=at(5.44), token=11),
        )
        play.given(DrainRequested(at=at(3), grace=grace(30)))
        play.expect(
            PublishState(state=ReplicaState.DRAINING, endpoint=LOCAL, detail="waiting for running turns to end"),
            AwaitDrained(),
            WakeAt(at=at(33), token=12),
        )
        play.given(Woke(at=at(5.44), token=11))  # the probe that is not needed any more
        play.given(DrainCompleted(at=at(6)))
        play.expect(TerminateProcess(), WakeAt(at=at(16), token=13))
        play.given(ProcessExited(at=at(6.2), status=0, log_tail=("bye",)))
        play.expect(ReleasePlacement(), PublishState(state=ReplicaState.STOPPED))
        play.given(Woke(at=at(16), token=13))


def test_killed_while_ready_and_back_on_another_port() -> None:
    other = Endpoint(host="127.0.0.1", port=41999)
    with Playbook(machine()) as play:
        play.given(ReplicaAdopted(at=at(0), pid=4711, endpoint=LOCAL))
        play.expect(
            PublishState(state=ReplicaState.LOADING, endpoint=LOCAL, detail="adopted"),
            WakeAt(at=at(1800), token=1),
            Probe(token=2),
        )
        play.given(ProbeAnswered(at=at(0), token=2, ready=True, listening=True))
        play.expect(PublishState(state=ReplicaState.WARMING, endpoint=LOCAL), Probe(token=3))
        play.given(ProbeAnswered(at=at(0), token=3, ready=True, listening=True))
        play.expect(
            PublishState(state=ReplicaState.READY, endpoint=LOCAL),
            WakeAt(at=at(60), token=4),
            WakeAt(at=at(5), token=5),
        )
        play.given(SuspicionRaised(at=at(1), reason="connection reset")).expect(Probe(token=6))
        play.given(ProcessExited(at=at(1), status=-9, log_tail=("loaded",)))
        play.expect(
            ReleasePlacement(),
            PublishState(
                state=ReplicaState.FAILED,
                detail="killed by signal 9; next attempt after 0.5 s",
                log_tail=("loaded",),
            ),
            WakeAt(at=at(1.5), token=7),
        )
        play.given(ProbeAnswered(at=at(1), token=6, ready=False, listening=False))  # of the process that is gone
        play.given(Woke(at=at(1.5), token=7))
        play.expect(PublishState(state=ReplicaState.PLACING), PlaceReplica())
        play.given(ReplicaPlaced(at=at(1.6)))
        play.expect(PublishState(state=ReplicaState.STARTING), LaunchProcess())
        play.given(ProcessStarted(at=at(1.6), pid=4712, endpoint=other))
        play.expect(
            Matching(PublishState, state=ReplicaState.STARTING, endpoint=other),
            WakeAt(at=at(601.6), token=8),
            WakeAt(at=at(1.65), token=9),
        )


def test_a_crash_loop_is_named_and_shows_the_last_lines() -> None:
    with Playbook(machine()) as play:
        play.given(ReplicaRequested(at=at(0)))
        play.expect(PublishState(state=ReplicaState.PLACING), PlaceReplica())
        token = 0
        for attempt, wait in enumerate([0.5, 1, 2, 4, 60], start=1):
            play.given(ReplicaPlaced(at=at(0)))
            play.expect(PublishState(state=ReplicaState.STARTING), LaunchProcess())
            play.given(ProcessStarted(at=at(0), pid=attempt, endpoint=LOCAL))
            play.expect(Matching(PublishState), Matching(WakeAt), Matching(WakeAt))
            play.given(ProcessExited(at=at(0), status=1, log_tail=("cannot open model",)))
            token += 3
            detail = "replica_crash_loop: exited with status 1, failure 5 in a row" if attempt == 5 else "start_failed"
            play.expect(
                ReleasePlacement(),
                Matching(PublishState, state=ReplicaState.FAILED, detail=detail, log_tail=("cannot open model",)),
                WakeAt(at=at(wait), token=token),
            )
            play.given(Woke(at=at(0), token=token))
            play.expect(PublishState(state=ReplicaState.PLACING), PlaceReplica())


def test_a_wedged_process_is_ended_then_killed_then_replaced() -> None:
    with Playbook(machine()) as play:
        play.given(ReplicaAdopted(at=at(0), pid=1, endpoint=LOCAL))
        play.expect(Matching(PublishState), Matching(WakeAt), Probe(token=2))
        play.given(ProbeAnswered(at=at(0), token=2, ready=True, listening=True))
        play.expect(Matching(PublishState), Probe(token=3))
        play.given(ProbeAnswered(at=at(0), token=3, ready=True, listening=True))
        play.expect(Matching(PublishState), Matching(WakeAt, token=4), WakeAt(at=at(5), token=5))
        play.given(Woke(at=at(5), token=5)).expect(Probe(token=6))
        play.given(ProbeAnswered(at=at(6), token=6, ready=False, listening=False, detail="timed out"))
        play.expect(WakeAt(at=at(7), token=7))
        play.given(Woke(at=at(7), token=7)).expect(Probe(token=8))
        play.given(ProbeAnswered(at=at(8), token=8, ready=False, listening=False, detail="timed out"))
        play.expect(WakeAt(at=at(9), token=9))
        play.given(Woke(at=at(9), token=9)).expect(Probe(token=10))
        play.given(ProbeAnswered(at=at(10), token=10, ready=False, listening=False, detail="timed out"))
        play.expect(
            PublishState(state=ReplicaState.FAILED, endpoint=LOCAL, detail="failed 3 probes in a row: timed out"),
            TerminateProcess(),
            WakeAt(at=at(20), token=11),
        )
        play.given(Woke(at=at(20), token=11)).expect(WakeAt(at=at(30), token=12), KillProcess())
        play.given(ProcessExited(at=at(20), status=-9, log_tail=()))
        play.expect(ReleasePlacement(), Matching(PublishState), WakeAt(at=at(20.5), token=13))


def test_what_only_a_person_can_mend_waits_for_a_reload() -> None:
    with Playbook(machine()) as play:
        play.given(ReplicaRequested(at=at(0)))
        play.expect(PublishState(state=ReplicaState.PLACING), PlaceReplica())
        play.given(PlacementFailed(at=at(1), code="checksum_mismatch", message="not the pinned file", permanent=True))
        play.expect(
            ReleasePlacement(),
            PublishState(state=ReplicaState.FAILED, detail="checksum_mismatch: not the pinned file"),
        )
        play.given(ReplicaRequested(at=at(90)))
        play.expect(PublishState(state=ReplicaState.PLACING), PlaceReplica())


def test_a_hosted_engine_has_no_process_to_restart() -> None:
    with Playbook(machine()) as play:
        play.given(ReplicaRequested(at=at(0)))
        play.expect(PublishState(state=ReplicaState.PLACING), PlaceReplica())
        play.given(ReplicaPlaced(at=at(0), endpoint=HOSTED))
        play.expect(PublishState(state=ReplicaState.LOADING, endpoint=HOSTED), Probe(token=1))
        play.given(ProbeAnswered(at=at(0.1), token=1, ready=True, listening=True))
        play.expect(PublishState(state=ReplicaState.WARMING, endpoint=HOSTED), Probe(token=2))
        play.given(ProbeAnswered(at=at(0.2), token=2, ready=True, listening=True))
        play.expect(
            PublishState(state=ReplicaState.READY, endpoint=HOSTED),
            Matching(WakeAt, token=3),
            Matching(WakeAt, token=4),
        )
        play.given(DrainRequested(at=at(1), grace=grace(30)))
        play.expect(Matching(PublishState, state=ReplicaState.DRAINING), AwaitDrained(), WakeAt(at=at(31), token=5))
        play.given(DrainCompleted(at=at(2)))
        play.expect(ReleasePlacement(), PublishState(state=ReplicaState.STOPPED))
