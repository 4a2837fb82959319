"""Breakers, outliers, slow start and who is left out."""

from pilothouse.model.fleet import ReplicaState
from pilothouse.model.units import SECOND, DurationNs, MonotonicNs, after, seconds
from pilothouse.policy.routing.health import (
    BASE_EJECTION,
    FAILURES_TO_OPEN,
    LONGEST_EJECTION,
    SLOW_START,
    Breaker,
    Circuit,
    excluded,
    outliers,
    warming,
)

NOW = MonotonicNs(100 * SECOND)
READY, DRAINING = ReplicaState.READY, ReplicaState.DRAINING


def opened() -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES_TO_OPEN):
        breaker.failed(NOW)
    return breaker


def test_failures_in_a_row_open_it() -> None:
    breaker = Breaker()
    for _ in range(FAILURES_TO_OPEN - 1):
        breaker.failed(NOW)
    breaker.succeeded()
    breaker.failed(NOW)
    assert breaker.state(NOW) is Circuit.CLOSED
    assert breaker.allows(NOW)
    assert opened().state(NOW) is Circuit.OPEN
    assert not opened().allows(NOW)


def test_half_open_lets_one_turn_try() -> None:
    breaker = opened()
    later = after(NOW, BASE_EJECTION)
    assert breaker.state(later) is Circuit.HALF_OPEN
    assert breaker.allows(later)
    breaker.sent(later)
    assert not breaker.allows(later)
    breaker.succeeded()
    assert breaker.state(later) is Circuit.CLOSED


def test_a_failed_trial_ejects_for_longer_up_to_a_bound() -> None:
    breaker = opened()
    now = NOW
    for times in range(2, 20):
        now = after(now, LONGEST_EJECTION)
        breaker.sent(now)
        breaker.failed(now)
        out = min(BASE_EJECTION * times, LONGEST_EJECTION)
        assert not breaker.allows(MonotonicNs(now + out - 1))
        assert breaker.allows(MonotonicNs(now + out))


def test_a_trial_that_says_nothing_leaves_room_for_the_next() -> None:
    breaker = opened()
    later = after(NOW, BASE_EJECTION)
    breaker.sent(later)
    breaker.abandoned()
    assert breaker.allows(later)


def test_an_answer_to_an_older_turn_does_not_close_it() -> None:
    breaker = opened()
    breaker.succeeded()
    assert breaker.state(NOW) is Circuit.OPEN


def test_outliers_are_far_below_their_peers() -> None:
    assert outliers([1_000, 990, 995, 1_000, 985, 400], [1_000] * 6) == [5]
    assert outliers([1_000] * 6, [1_000] * 6) == []
    assert outliers([1_000, 990, 995, 400], [1_000] * 4) == []
    assert outliers([90] * 5 + [0], [99] * 5 + [1]) == []


def test_draining_and_ejected_replicas_get_no_new_turns() -> None:
    breakers = [Breaker(), opened(), Breaker(), Breaker()]
    assert excluded([READY, READY, READY, DRAINING], breakers, NOW) == {1, 3}


def test_when_most_are_ejected_none_is() -> None:
    breakers = [opened(), opened(), Breaker()]
    assert excluded([READY, READY, READY], breakers, NOW) == set()
    assert excluded([READY, READY, DRAINING], breakers, NOW) == {2}
    assert excluded([], [], NOW) == set()


def test_a_cold_replica_is_weighed_as_if_it_were_smaller() -> None:
    ready = [MonotonicNs(0), NOW]
    assert warming([100, 0], ready, NOW) == [100, 450]
    half = MonotonicNs(NOW + SLOW_START // 2)
    assert warming([100, 0], ready, half) == [100, 50]
    assert warming([100, 0], ready, after(NOW, SLOW_START)) == [100, 0]
    assert warming([], [], NOW) == []
    assert seconds(30) == DurationNs(SLOW_START)
