import pytest

from pilothouse.model.fleet import ReplicaState
from pilothouse.model.ids import ReplicaId
from pilothouse.policy.reconciliation import PresentReplica, Reconciliation, choose, without_starts

READY, LOADING, FAILED = ReplicaState.READY, ReplicaState.LOADING, ReplicaState.FAILED
DRAINING, STOPPED = ReplicaState.DRAINING, ReplicaState.STOPPED


def new(index: int, state: ReplicaState = READY) -> PresentReplica:
    return PresentReplica(id=ReplicaId(f"a-{index}"), index=index, current=True, state=state)


def old(index: int, state: ReplicaState = READY) -> PresentReplica:
    return PresentReplica(id=ReplicaId(f"a-{index}"), index=index, current=False, state=state)


def step(start: tuple[int, ...] = (), drain: tuple[str, ...] = ()) -> Reconciliation:
    return Reconciliation(start=start, drain=tuple(ReplicaId(each) for each in drain))


@pytest.mark.parametrize(
    ("wanted", "present", "expected"),
    [
        # Nothing to do.
        (0, [], step()),
        (2, [new(0), new(1)], step()),
        (2, [new(0, LOADING), new(1, FAILED)], step()),
        # Scaling up takes the lowest free indices.
        (2, [], step(start=(0, 1))),
        (3, [new(1)], step(start=(0, 2))),
        (1, [new(0, STOPPED)], step(start=(0,))),
        # One that still drains keeps its room and its name.
        (1, [new(0, DRAINING)], step(start=(1,))),
        (2, [new(0, DRAINING), new(1)], step()),
        # Scaling down: what does not serve goes first, then what came last.
        (1, [new(0), new(1), new(2)], step(drain=("a-2", "a-1"))),
        (1, [new(0, LOADING), new(1)], step(drain=("a-0",))),
        (2, [new(0), new(1, FAILED), new(2)], step(drain=("a-1",))),
        (0, [new(0), new(1, DRAINING)], step(drain=("a-0",))),
        # A deployment that is gone.
        (0, [old(0), old(1, LOADING)], step(drain=("a-1", "a-0"))),
        # Replacing two: one at a time, in its place.
        (2, [old(0), old(1)], step(drain=("a-0",))),
        (2, [old(0, DRAINING), old(1)], step()),
        (2, [old(0, STOPPED), old(1)], step(start=(0,))),
        (2, [new(0, LOADING), old(1)], step()),
        (2, [new(0, FAILED), old(1)], step()),
        (2, [new(0), old(1)], step(drain=("a-1",))),
        (2, [new(0), old(1, DRAINING)], step()),
        # What is stale and does not serve is no loss.
        (2, [old(0, FAILED), old(1)], step(drain=("a-0",))),
        (3, [old(0), old(1), old(2, LOADING)], step(drain=("a-2",))),
        # Replacing one: the new one is Ready first.
        (1, [old(0)], step(start=(1,))),
        (1, [old(0), new(1, LOADING)], step()),
        (1, [old(0), new(1)], step(drain=("a-0",))),
        (1, [old(0, DRAINING), new(1)], step()),
        # Replacing and scaling in one.
        (1, [old(0), old(1)], step(drain=("a-0",))),
        (3, [old(0)], step(start=(1, 2))),
        (2, [old(0), new(1)], step(drain=("a-0",))),
    ],
)
def test_the_next_steps(wanted: int, present: list[PresentReplica], expected: Reconciliation) -> None:
    assert choose(wanted, present) == expected


def test_of_a_deployment_that_may_not_serve_none_is_started_and_what_is_ready_stays() -> None:
    present = [new(0), new(1, LOADING), new(2, FAILED), new(3, DRAINING), old(4)]
    found = without_starts(step(start=(5,), drain=("a-2", "a-4")), present)
    assert found == step(drain=("a-2", "a-4", "a-1"))
