"""Which replica was sent which prefix."""

from pilothouse.policy.affinity.prefix_index import PrefixIndex


def test_it_knows_the_leading_blocks_of_every_replica() -> None:
    index = PrefixIndex(3, 100)
    index.sent([1, 2, 3, 4], 0)
    index.sent([1, 2, 9], 2)
    assert index.matched([1, 2, 3, 4, 5]) == [4, 0, 2]
    assert index.matched([1, 2, 9]) == [2, 0, 3]
    assert index.matched([2, 3]) == [2, 0, 1]
    assert index.matched([7]) == [0, 0, 0]
    assert index.matched([]) == [0, 0, 0]


def test_the_oldest_goes_first_and_a_prefix_after_what_follows_it() -> None:
    index = PrefixIndex(1, 4)
    index.sent([1, 2, 3], 0)
    index.sent([4, 5], 0)
    assert index.matched([1, 2, 3]) == [2]
    assert index.matched([4, 5]) == [2]
    assert len(index) == 4


def test_what_is_used_again_stays() -> None:
    index = PrefixIndex(1, 3)
    index.sent([1], 0)
    index.sent([2, 3], 0)
    index.sent([1], 0)
    index.sent([4], 0)
    assert index.matched([1]) == [1]
    assert index.matched([2, 3]) == [1]


def test_forgetting_at_one_replica_leaves_the_others() -> None:
    index = PrefixIndex(2, 2)
    index.sent([1, 2], 0)
    index.sent([1, 2], 1)
    index.sent([5, 6], 0)
    assert index.matched([1, 2]) == [0, 2]


def test_a_prompt_longer_than_the_bound_keeps_its_front() -> None:
    index = PrefixIndex(1, 3)
    index.sent([1, 2, 3, 4, 5], 0)
    assert index.matched([1, 2, 3, 4, 5]) == [3]


def test_a_replica_that_restarts_holds_nothing() -> None:
    index = PrefixIndex(2, 10)
    index.sent([1, 2], 0)
    index.sent([1], 1)
    index.clear(0)
    assert index.matched([1, 2]) == [0, 1]
    assert len(index) == 1
    index.sent([1, 2], 0)
    assert index.matched([1, 2]) == [2, 1]


def test_it_grows_by_slots() -> None:
    index = PrefixIndex(0, 10)
    assert index.matched([1]) == []
    assert (index.add(), index.add(), index.slots) == (0, 1, 2)
    index.sent([1], 1)
    assert index.matched([1]) == [0, 1]
