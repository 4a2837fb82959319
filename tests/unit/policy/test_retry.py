"""What is tried again, and how often."""

import pytest

from pilothouse.model.units import MILLISECOND, DurationNs
from pilothouse.policy.retry import (
    BUDGET_CAP,
    BUDGET_RATIO,
    BUDGET_RESERVE,
    MAX_ATTEMPTS,
    STALE_WINDOW,
    Failure,
    RetryBudget,
    classify_loss,
)


@pytest.mark.parametrize(
    ("reused", "since_sent", "failure"),
    [
        (True, DurationNs(0), Failure.STALE_CONNECTION),
        (True, STALE_WINDOW, Failure.STALE_CONNECTION),
        (True, DurationNs(STALE_WINDOW + 1), Failure.LOST),
        (False, DurationNs(1 * MILLISECOND), Failure.LOST),
    ],
)
def test_only_a_kept_connection_that_closes_at_once_was_stale(
    reused: bool, since_sent: DurationNs, failure: Failure
) -> None:
    assert classify_loss(reused=reused, since_sent=since_sent) is failure


def retries(budget: RetryBudget, limit: int = 1000) -> int:
    """How many retries the budget gives when asked until it says no."""
    return next(count for count in range(limit) if not budget.may_retry(Failure.CONNECT_FAILED, 1))


def test_a_lost_request_is_never_tried_again_and_takes_nothing() -> None:
    budget = RetryBudget()
    assert not any(budget.may_retry(Failure.LOST, 1) for _ in range(100))
    assert retries(budget) == BUDGET_RESERVE


def test_attempts_are_bounded() -> None:
    budget = RetryBudget()
    assert budget.may_retry(Failure.STALE_CONNECTION, MAX_ATTEMPTS - 1)
    assert not budget.may_retry(Failure.STALE_CONNECTION, MAX_ATTEMPTS)


def test_retries_are_a_share_of_the_requests_above_a_reserve() -> None:
    budget = RetryBudget()
    assert retries(budget) == BUDGET_RESERVE
    budget.requests += 100
    assert retries(budget) == 100 * BUDGET_RATIO


def test_quiet_hours_save_up_to_a_cap() -> None:
    budget = RetryBudget()
    budget.requests += 1_000_000
    assert retries(budget) == BUDGET_CAP
