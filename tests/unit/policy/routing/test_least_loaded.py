"""The least loaded replica, ties at random, and never one that was excluded."""

from collections import Counter

import pytest

from pilothouse.policy.draw import Draws
from pilothouse.policy.routing import least_loaded

DRAWS = Draws(7)


@pytest.mark.parametrize(
    ("loads", "excluded", "chosen"),
    [
        ([5], (), 0),
        ([5, 3, 9], (), 1),
        ([5, 3, 9], (1,), 0),
        ([0, 3, 9], (0, 1), 2),
        ([3, 3], (0,), 1),
    ],
)
def test_the_one_with_the_fewest_tokens_in_flight(loads: list[int], excluded: tuple[int, ...], chosen: int) -> None:
    assert least_loaded(loads, "req_1", DRAWS, excluded=excluded) == chosen


@pytest.mark.parametrize(("loads", "excluded"), [([], ()), ([1], (0,)), ([1, 2], (0, 1))])
def test_none_is_left(loads: list[int], excluded: tuple[int, ...]) -> None:
    assert least_loaded(loads, "req_1", DRAWS, excluded=excluded) is None


@pytest.mark.parametrize("excluded", [(), (3,)])
def test_ties_are_drawn_evenly_and_the_same_way_again(excluded: tuple[int, ...]) -> None:
    loads = [1, 0, 0, 0]
    ids = [f"req_{number:012x}" for number in range(3000)]
    chosen = [least_loaded(loads, each, DRAWS, excluded=excluded) for each in ids]
    assert chosen == [least_loaded(loads, each, Draws(7), excluded=excluded) for each in ids]
    tied = {1, 2, 3} - set(excluded)
    counts = Counter(chosen)
    assert set(counts) == tied
    assert all(abs(count - 3000 / len(tied)) < 200 for count in counts.values())
