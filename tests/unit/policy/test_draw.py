"""Chance that can be repeated."""

from collections import Counter

from pilothouse.policy.draw import Draws

IDS = [f"req_{number:012x}" for number in range(4000)]


def test_the_same_seed_request_and_purpose_draw_the_same() -> None:
    first = [Draws(1).below(10, each, "replica") for each in IDS]
    assert first == [Draws(1).below(10, each, "replica") for each in IDS]
    draws = Draws(1)
    assert first == [draws.below(10, each, "replica") for each in IDS]
    assert first != [Draws(2).below(10, each, "replica") for each in IDS]
    assert first != [Draws(1).below(10, each, "arm") for each in IDS]


def test_purposes_are_independent() -> None:
    for one, other in (("replica", "canary"), ("arm-a", "arm-b")):
        pairs = Counter((Draws(1).below(2, each, one), Draws(1).below(2, each, other)) for each in IDS)
        assert all(abs(count - 1000) < 150 for count in pairs.values()), pairs
        assert len(pairs) == 4


def test_draws_are_even_below_the_bound() -> None:
    for bound in (1, 2, 3, 7):
        counts = Counter(Draws(1).below(bound, each, "replica") for each in IDS)
        assert set(counts) == set(range(bound))
        assert all(abs(count - 4000 / bound) < 250 for count in counts.values())
