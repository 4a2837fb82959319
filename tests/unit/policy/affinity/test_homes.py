"""Rendezvous hashing."""

from collections import Counter

from pilothouse.policy.affinity.homes import digest_of, home, weights

KEYS = [digest_of(f"key-{number}") for number in range(8_000)]


def replicas(count: int) -> list[int]:
    return [digest_of(f"replica-{number}") for number in range(count)]


def test_keys_are_even() -> None:
    for count in (2, 5, 16, 64):
        owned = Counter(home(key, replicas(count)) for key in KEYS)
        mean = len(KEYS) / count
        assert max(owned.values()) < mean + 5 * mean**0.5
        assert min(owned.values()) > mean - 5 * mean**0.5


def test_homes_are_the_same_in_every_process() -> None:
    assert [home(key, replicas(8)) for key in KEYS[:8]] == [home(key, replicas(8)) for key in KEYS[:8]]
    assert digest_of("replica-0") == 15423534593276513917


def test_a_replica_that_is_added_takes_a_fair_share_and_moves_nothing_else() -> None:
    before = [home(key, replicas(8)) for key in KEYS]
    after = [home(key, replicas(9)) for key in KEYS]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {8}
    assert abs(len(moved) - len(KEYS) / 9) < 5 * (len(KEYS) / 9) ** 0.5


def test_the_keys_of_a_lost_replica_spread_over_all_others() -> None:
    """sglang #9484, production-stack: not all to the first healthy one."""
    left = replicas(8)
    lost = left.pop(3)
    heirs = Counter(home(key, left) for key in KEYS if home(key, replicas(8)) == 3)
    fair = sum(heirs.values()) / 7
    assert lost not in left
    assert len(heirs) == 7
    assert max(heirs.values()) < fair + 5 * fair**0.5


def test_order_behind_the_home_is_independent_of_it() -> None:
    pairs: Counter[tuple[int, ...]] = Counter()
    for key in KEYS:
        ranked = sorted(range(4), key=weights(key, replicas(4)).__getitem__, reverse=True)
        pairs[tuple(ranked[:2])] += 1
    assert len(pairs) == 12
    assert max(pairs.values()) < 1.3 * len(KEYS) / 12
