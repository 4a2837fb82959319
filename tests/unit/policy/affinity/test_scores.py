"""What each way of choosing thinks of each candidate."""

from collections import Counter

import pytest

from pilothouse.policy.affinity.homes import digest_of
from pilothouse.policy.affinity.scores import DEFAULT_POLICY, POLICIES, USES_INDEX, USES_PREFIX, Ask, Scores, Tuning
from pilothouse.policy.draw import Draws

DRAWS = Draws(5)
REPLICAS = [digest_of(f"replica-{number}") for number in range(4)]


def scores(
    policy: str,
    matched: list[int],
    loads: list[int],
    *,
    tokens: int = 1_000,
    key: int | None = 99,
    request: str = "r",
    turn: int = 0,
    tuning: Tuning | None = None,
) -> Scores:
    ask = Ask(request, tokens, key, turn)
    return POLICIES[policy](ask, matched, loads, REPLICAS[: len(loads)], DRAWS, tuning or Tuning())


def best(found: Scores) -> int:
    return list(found).index(min(found))


def test_every_policy_is_named_and_the_sets_are_of_them() -> None:
    assert DEFAULT_POLICY in USES_INDEX <= USES_PREFIX <= set(POLICIES)


def test_new_prefill_times_load() -> None:
    assert scores("new-prefill-x-load", [600, 0], [10, 4]) == [401 * 11, 1_001 * 5]
    assert best(scores("new-prefill-x-load", [900, 0], [10, 4])) == 0
    assert best(scores("new-prefill-x-load", [900, 0], [50, 4])) == 1


def test_overlap_cost_adds_and_weighs() -> None:
    assert scores("overlap-cost", [600, 0], [10, 4]) == [410, 1_004]
    assert scores("overlap-cost", [600, 0], [10, 4], tuning=Tuning(overlap_weight=2)) == [810, 2_004]


def test_cache_aware_follows_a_long_match_only_while_loads_are_even() -> None:
    assert best(scores("cache-aware", [400, 0, 0], [30_000, 10, 0])) == 0
    assert best(scores("cache-aware", [200, 0, 0], [30_000, 10, 0])) == 2
    assert best(scores("cache-aware", [400, 0, 0], [40_000, 10, 0])) == 2
    assert best(scores("cache-aware", [400, 400, 0], [30, 10, 0])) == 1


def test_bounded_load_hash_keeps_a_key_and_walks_on_when_its_home_is_full() -> None:
    home = best(scores("bounded-load-hash", [0] * 4, [10] * 4))
    assert best(scores("bounded-load-hash", [0] * 4, [0] * 4)) == home
    loads = [10] * 4
    loads[home] = 100
    second = best(scores("bounded-load-hash", [0] * 4, loads))
    assert second != home
    assert best(scores("bounded-load-hash", [0] * 4, [7, 3, 5, 1], key=None)) == 3


def test_what_a_full_home_spills_is_spread() -> None:
    heirs: Counter[int] = Counter()
    for number in range(600):
        key = digest_of(f"key-{number}")
        home = best(scores("bounded-load-hash", [0] * 4, [10] * 4, key=key))
        if home == 0:
            heirs[best(scores("bounded-load-hash", [0] * 4, [100, 10, 10, 10], key=key))] += 1
    assert set(heirs) == {1, 2, 3}


def test_least_loaded() -> None:
    assert scores("least-loaded", [900, 0], [3, 2]) == [3, 2]


def test_power_of_two_never_takes_the_worst_and_draws_evenly() -> None:
    taken: Counter[int] = Counter()
    for number in range(2_000):
        taken[best(scores("power-of-two", [0] * 4, [1, 2, 3, 4], request=f"req-{number}"))] += 1
    assert taken[3] == 0
    assert 900 < taken[0] < 1_100
    assert scores("power-of-two", [0], [5]) == [0]


@pytest.mark.parametrize("turn", range(8))
def test_round_robin_takes_turns(turn: int) -> None:
    assert best(scores("round-robin", [0] * 4, [9, 9, 9, 9], turn=turn)) == turn % 4
