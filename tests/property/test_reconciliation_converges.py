"""Whatever runs becomes what is wanted, and what serves is never all lost on the way."""

from hypothesis import given, strategies

from pilothouse.model.fleet import ReplicaState
from pilothouse.model.ids import ReplicaId
from pilothouse.policy.reconciliation import PresentReplica, choose

STATES = (ReplicaState.LOADING, ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.FAILED)


def replica(index: int, state: ReplicaState, *, current: bool) -> PresentReplica:
    return PresentReplica(id=ReplicaId(f"a-{index}"), index=index, current=current, state=state)


@given(
    wanted=strategies.integers(0, 4),
    before=strategies.lists(strategies.tuples(strategies.sampled_from(STATES), strategies.booleans()), max_size=5),
    order=strategies.randoms(use_true_random=False),
)
def test_it_converges_and_keeps_serving(
    wanted: int, before: list[tuple[ReplicaState, bool]], order: strategies.DrawFn
) -> None:
    present = {index: replica(index, state, current=current) for index, (state, current) in enumerate(before)}
    most = max(len(present), wanted + (wanted == 1))

    def serving() -> int:
        return sum(each.state is ReplicaState.READY for each in present.values())

    for _ in range(60):
        had = serving()
        decision = choose(wanted, list(present.values()))
        assert not set(decision.start) & set(present), "a name is used twice"
        for index, each in list(present.items()):
            if each.id in decision.drain:
                present[index] = replica(index, ReplicaState.DRAINING, current=each.current)
        for index in decision.start:
            present[index] = replica(index, ReplicaState.LOADING, current=True)
        assert len(present) <= most, "more than there is room for"
        if wanted:
            assert serving() >= min(had, max(1, wanted - 1)), "too much capacity at once"
        moving = [index for index, each in present.items() if each.state is not ReplicaState.READY]
        if not moving and not decision.start and not decision.drain:
            break
        if moving:
            index = order.choice(moving)  # type: ignore[attr-defined]
            each = present[index]
            if each.state is ReplicaState.DRAINING:
                del present[index]
            else:
                present[index] = replica(index, ReplicaState.READY, current=each.current)
    assert all(each.current and each.state is ReplicaState.READY for each in present.values())
    assert len(present) == wanted
