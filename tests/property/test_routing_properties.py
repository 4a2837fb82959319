"""Keys move as little as they can, arms stay, and memory is bounded, whatever happens."""

from collections import OrderedDict

from hypothesis import given, settings, strategies

from pilothouse.policy.affinity.event_index import BatchOrder, Verdict
from pilothouse.policy.affinity.homes import digest_of, home
from pilothouse.policy.affinity.prefix_index import PrefixIndex
from pilothouse.policy.canary.split import SLOTS, Arm, make_split, reweigh

REPLICAS = strategies.lists(strategies.integers(0, 40), min_size=2, max_size=12, unique=True)
WEIGHTS = strategies.lists(strategies.integers(0, 100), min_size=1, max_size=5).filter(any)


@given(names=REPLICAS, keys=strategies.lists(strategies.integers(0, 2**64 - 1), max_size=30))
def test_removing_a_replica_moves_its_keys_only(names: list[int], keys: list[int]) -> None:
    digests = [digest_of(f"replica-{name}") for name in names]
    gone, left = digests[0], digests[1:]
    for key in keys:
        before = digests[home(key, digests)]
        after = left[home(key, left)]
        assert before in (gone, after)


@given(names=REPLICAS, key=strategies.integers(0, 2**64 - 1), chance=strategies.randoms(use_true_random=False))
def test_a_home_does_not_depend_on_the_order_in_which_replicas_are_known(
    names: list[int], key: int, chance: strategies.DrawFn
) -> None:
    digests = [digest_of(f"replica-{name}") for name in names]
    shuffled = digests.copy()
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert digests[home(key, digests)] == shuffled[home(key, shuffled)]


@settings(max_examples=40)
@given(before=WEIGHTS, after=WEIGHTS)
def test_new_weights_are_met_and_no_slot_moves_without_need(before: list[int], after: list[int]) -> None:
    def arms(weights: list[int]) -> list[Arm]:
        return [Arm(name=f"arm-{place}", deployments=(), weight=weight) for place, weight in enumerate(weights)]

    old = make_split("m", arms(before))
    new = reweigh(old, arms(after))
    had = [old.owners.count(place) for place in range(max(len(before), len(after)))]
    has = [new.owners.count(place) for place in range(max(len(before), len(after)))]
    fresh = make_split("m", arms(after))
    assert has[: len(after)] == [fresh.owners.count(place) for place in range(len(after))]
    moved = sum(one != other for one, other in zip(old.owners, new.owners, strict=True))
    assert moved == sum(max(0, now - then) for then, now in zip(had, has, strict=True))
    assert len(new.owners) == SLOTS


class ModelIndex:
    """The index as one would write it without a thought for time: a list in order of use for each slot."""

    def __init__(self, slots: int, capacity: int) -> None:
        self.held: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(slots)]
        self.capacity = capacity

    def sent(self, blocks: list[int], slot: int) -> None:
        for block in reversed(blocks):
            self.held[slot].pop(block, None)
            self.held[slot][block] = None
        while len(self.held[slot]) > self.capacity:
            self.held[slot].popitem(last=False)

    def matched(self, blocks: list[int]) -> list[int]:
        counts = []
        for held in self.held:
            known = [block in held for block in blocks]
            counts.append(known.index(False) if False in known else len(known))
        return counts


BLOCKS = strategies.lists(strategies.integers(0, 12), max_size=6, unique=True)


@given(
    steps=strategies.lists(
        strategies.tuples(
            strategies.sampled_from(["sent", "sent", "sent", "clear"]), BLOCKS, strategies.integers(0, 2)
        ),
        max_size=40,
    ),
    asked=BLOCKS,
)
def test_the_index_equals_its_model_and_is_bounded(steps: list[tuple[str, list[int], int]], asked: list[int]) -> None:
    index, model = PrefixIndex(3, 5), ModelIndex(3, 5)
    for action, blocks, slot in steps:
        if action == "sent":
            index.sent(blocks, slot)
            model.sent(blocks, slot)
        else:
            index.clear(slot)
            model.held[slot].clear()
        assert index.matched(asked) == model.matched(asked)
        assert len(index) == len(set().union(*model.held)) <= 15


@given(lost=strategies.sets(strategies.integers(1, 30), max_size=15), kept_from=strategies.integers(0, 30))
def test_every_batch_is_applied_once_in_order_or_the_index_is_cleared(lost: set[int], kept_from: int) -> None:
    order = BatchOrder()
    applied: list[int] = []

    def take(number: int, verdict: Verdict) -> None:
        if verdict is Verdict.CLEAR_AND_APPLY:
            applied.clear()
        if verdict in (Verdict.APPLY, Verdict.CLEAR_AND_APPLY):
            applied.append(number)

    for number in range(32):
        if number in lost:
            continue
        verdict = order.live(number)
        take(number, verdict)
        if verdict is Verdict.REPLAY:
            for old in range(max(order.expected, min(kept_from, number)), number + 1):
                take(old, order.replayed(old))
            if order.replay_ended():
                applied.clear()
    assert applied == list(range(applied[0], 32))
