"""The price of a session's move."""

from pilothouse.policy.affinity.moves import price


def test_a_move_pays_when_more_queue_is_saved_than_cache_is_lost() -> None:
    weighed = price(prompt=1_000, held_at_home=900, held_there=100, load_at_home=5_000, load_there=1_000)
    assert (weighed.lost, weighed.saved, weighed.margin) == (800, 4_000, 101)
    assert weighed.pays
    assert not price(prompt=1_000, held_at_home=900, held_there=0, load_at_home=1_500, load_there=600).pays


def test_a_cache_that_is_larger_elsewhere_is_no_loss() -> None:
    assert price(prompt=100, held_at_home=0, held_there=80, load_at_home=0, load_there=0).lost == 0


def test_small_differences_move_nobody() -> None:
    assert not price(prompt=0, held_at_home=0, held_there=0, load_at_home=1, load_there=0).pays
    assert not price(prompt=10_000, held_at_home=0, held_there=0, load_at_home=1_000, load_there=0).pays
