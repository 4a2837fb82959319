import pytest

from pilothouse.model.tenants import BudgetLimit, Level, Period, RateLimit
from pilothouse.model.units import SECOND, WallNs
from pilothouse.policy.limits.decision import LimitRefusal, Window, reset_text
from pilothouse.policy.limits.plan import LimitPlan
from pilothouse.policy.limits.reservation import TRANSITIONS, Demand, Reservation, ReservationState
from pilothouse.policy.limits.windows import Budget, Concurrency, Rate, period_of

NOW = 10**15
WALL = 1_790_000_000 * SECOND  # 21 September 2026, 14:13:20 UTC
MINUTE = 60 * SECOND


def rate(window: Window, per_minute: int, burst: int | None = None, *, borrow: bool = False) -> Rate:
    return Rate(Level.KEY, window, RateLimit(per_minute=per_minute, burst=burst, borrow=borrow))


def demand(inputs: int = 10, outputs: int = 20, nano_cost: int = 0, *, idle: bool = False) -> Demand:
    return Demand(input_tokens=inputs, output_tokens=outputs, nano_cost=nano_cost, idle=idle)


def taken(found: Reservation | LimitRefusal) -> Reservation:
    assert isinstance(found, Reservation)
    return found


def refused(found: Reservation | LimitRefusal) -> LimitRefusal:
    assert isinstance(found, LimitRefusal)
    return found


def test_a_burst_of_requests_at_once_cannot_pass_a_token_limit() -> None:
    # litellm#18730: five requests at once used 663 tokens of a limit of 100.
    plan = LimitPlan([rate(Window.TOTAL_TOKENS, 100)])
    found = [plan.reserve(demand(), NOW, WALL) for _ in range(5)]
    assert [isinstance(each, Reservation) for each in found] == [True, True, True, False, False]


def test_a_refused_reservation_is_not_kept_from_any_window() -> None:
    # litellm PR 27001: the rejected reservation was counted and never given back, so that the bucket drained itself.
    first, second = rate(Window.INPUT_TOKENS, 1000), rate(Window.TOTAL_TOKENS, 25)
    plan = LimitPlan([first, second, rate(Window.REQUESTS, 5)])
    for _ in range(100):
        refused(plan.reserve(demand(inputs=26, outputs=1), NOW, WALL))
    assert first.remaining(NOW) == 1000
    taken(plan.reserve(demand(inputs=5), NOW, WALL))


def test_a_request_without_max_tokens_is_admitted_under_a_small_limit() -> None:
    # litellm PR 29193: at least 1,024 tokens were reserved, so that the first request of a small limit was refused.
    plan = LimitPlan([rate(Window.TOTAL_TOKENS, 100)])
    found = taken(plan.reserve(demand(inputs=30, outputs=256), NOW, WALL))
    assert found.output_tokens == 70


def test_what_is_used_beyond_the_reservation_is_owed() -> None:
    plan = LimitPlan([rate(Window.TOTAL_TOKENS, 60)])
    taken(plan.reserve(demand(inputs=30, outputs=30), NOW, WALL)).settle(NOW, 30, 90)
    refusal = refused(plan.reserve(demand(inputs=1, outputs=1), NOW, WALL))
    assert refusal.retry_after_s == 62
    assert refused(plan.reserve(demand(inputs=1, outputs=1), NOW + 61 * SECOND, WALL)).retry_after_s == 1
    taken(plan.reserve(demand(inputs=1, outputs=1), NOW + 62 * SECOND, WALL))


def test_a_concurrency_rejection_does_not_burn_the_requests_per_minute() -> None:
    # litellm#39309
    requests = rate(Window.REQUESTS, 10)
    plan = LimitPlan([requests], [Concurrency(Level.KEY, 1)])
    taken(plan.reserve(demand(), NOW, WALL))
    for _ in range(20):
        assert refused(plan.reserve(demand(), NOW, WALL)).window is Window.CONCURRENCY
    assert requests.remaining(NOW) == 9


def test_requests_and_tokens_have_windows_of_their_own() -> None:
    # litellm#24677: both shared one window's key, and throttled early.
    requests, tokens = rate(Window.REQUESTS, 2), rate(Window.TOTAL_TOKENS, 1000)
    plan = LimitPlan([requests, tokens])
    taken(plan.reserve(demand(), NOW, WALL))
    taken(plan.reserve(demand(), NOW, WALL))
    assert refused(plan.reserve(demand(), NOW, WALL)).window is Window.REQUESTS
    later = NOW + 30 * SECOND
    assert (requests.remaining(later), tokens.remaining(later)) == (1, 1000)


def test_the_refusal_names_the_limit_that_lasts_longest() -> None:
    plan = LimitPlan([rate(Window.REQUESTS, 60, 1), Rate(Level.TENANT, Window.TOTAL_TOKENS, RateLimit(per_minute=30))])
    taken(plan.reserve(demand(), NOW, WALL))
    refusal = refused(plan.reserve(demand(), NOW, WALL))
    assert (refusal.level, refusal.window, refusal.limit) == (Level.TENANT, Window.TOTAL_TOKENS, 30)
    assert (refusal.asked, refusal.remaining, refusal.retry_after_s) == (30, 0, 60)
    assert refusal.refusal.code == "rate_limit_exceeded"
    assert "30 tokens per minute" in refusal.refusal.message


def test_a_request_larger_than_the_limit_is_told_that_waiting_does_not_help() -> None:
    plan = LimitPlan([rate(Window.INPUT_TOKENS, 100)])
    refusal = refused(plan.reserve(demand(inputs=101), NOW, WALL))
    assert refusal.retry_after_s is None
    assert "larger than the limit" in refusal.refusal.message


def test_a_limit_of_nothing_admits_nothing() -> None:
    assert refused(LimitPlan([rate(Window.REQUESTS, 0)]).reserve(demand(), NOW, WALL)).retry_after_s is None


@pytest.mark.parametrize("elapsed_s", [0, 29, 30, 31, 120])
def test_what_was_not_used_comes_back_as_far_as_it_has_not_drained(elapsed_s: int) -> None:
    tokens = rate(Window.TOTAL_TOKENS, 60)
    plan = LimitPlan([tokens])
    found = taken(plan.reserve(demand(inputs=0, outputs=60), NOW, WALL))
    later = NOW + elapsed_s * SECOND
    found.settle(later, 0, 30)
    # As if 30 tokens had been asked for: they drain in half a minute.
    assert tokens.remaining(later) == min(60, 30 + elapsed_s)


def test_unused_reservations_are_not_saved_up() -> None:
    tokens = rate(Window.TOTAL_TOKENS, 60)
    plan = LimitPlan([tokens])
    first = taken(plan.reserve(demand(inputs=0, outputs=60), NOW, WALL))
    later = NOW + MINUTE
    taken(plan.reserve(demand(inputs=0, outputs=60), later, WALL))
    first.release(later)
    refused(plan.reserve(demand(inputs=0, outputs=60), later, WALL))


@pytest.mark.parametrize("ending", ["settle", "release", "abandon"])
def test_the_first_end_wins(ending: str) -> None:
    slots, tokens = Concurrency(Level.KEY, 5), rate(Window.TOTAL_TOKENS, 100)
    plan = LimitPlan([tokens], [slots])
    found = taken(plan.reserve(demand(), NOW, WALL))
    ends = {
        "settle": lambda: found.settle(NOW, 10, 10) is not None,
        "release": lambda: found.release(NOW),
        "abandon": found.abandon,
    }
    assert ends[ending]()
    state = (found.state, slots.active, tokens.tat)
    assert not any(end() for end in ends.values())
    assert (found.state, slots.active, tokens.tat) == state
    assert TRANSITIONS[found.state] == ()
    assert found.state in TRANSITIONS[ReservationState.RESERVED]


def test_an_abandoned_request_keeps_its_debit_and_gives_back_its_place() -> None:
    slots, tokens = Concurrency(Level.KEY, 5), rate(Window.TOTAL_TOKENS, 100)
    taken(LimitPlan([tokens], [slots]).reserve(demand(), NOW, WALL)).abandon()
    assert (slots.active, tokens.remaining(NOW)) == (0, 70)


def budget(tokens: int | None = None, nano_money: int | None = None, period: Period = Period.DAY) -> Budget:
    spec = BudgetLimit(period=period, tokens=tokens, nano_money=nano_money, alarm_ratios=(0.5, 1.0))
    return Budget(Level.TENANT, spec, money=tokens is None)


def test_a_spent_budget_is_a_quota_and_comes_back_with_the_day() -> None:
    plan = LimitPlan([], [], [budget(tokens=100)])
    taken(plan.reserve(demand(inputs=50, outputs=50), NOW, WALL))
    refusal = refused(plan.reserve(demand(), NOW, WALL))
    assert (refusal.code, refusal.refusal.code) == ("insufficient_quota", "insufficient_quota")
    day_ends_in = 24 * 3600 - (14 * 3600 + 13 * 60 + 20)
    assert refusal.retry_after_s == day_ends_in
    taken(plan.reserve(demand(), NOW, WALL + day_ends_in * SECOND))


def test_a_request_of_yesterday_is_not_settled_against_today() -> None:
    daily = budget(tokens=100)
    plan = LimitPlan([], [], [daily])
    found = taken(plan.reserve(demand(inputs=50, outputs=50), NOW, WALL))
    taken(plan.reserve(demand(inputs=10, outputs=20), NOW, WALL + 24 * 3600 * SECOND))
    found.settle(NOW, 1, 1)
    assert daily.used == 30


def test_money_is_counted_by_the_engines_numbers_and_alarms_are_raised_once() -> None:
    plan = LimitPlan([], [], [budget(nano_money=1000, period=Period.MONTH)])
    alarms = taken(plan.reserve(demand(nano_cost=900), NOW, WALL)).settle(NOW, 10, 10, 400)
    assert alarms == ()
    alarms = taken(plan.reserve(demand(nano_cost=100), NOW, WALL)).settle(NOW, 10, 10, 100)
    assert alarms is not None
    assert [(alarm.threshold, alarm.used, alarm.window) for alarm in alarms] == [(500, 500, Window.MONEY_PER_MONTH)]
    alarms = taken(plan.reserve(demand(nano_cost=1), NOW, WALL)).settle(NOW, 10, 10, 700)
    assert [alarm.threshold for alarm in alarms or ()] == [1000]
    assert refused(plan.reserve(demand(nano_cost=1), NOW, WALL)).remaining == 0


@pytest.mark.parametrize(
    ("wall_s", "starts_s", "ends_s"),
    [
        (1_790_000_000, 1_788_220_800, 1_790_812_800),  # September 2026
        (1_798_761_599, 1_796_083_200, 1_798_761_600),  # the last second of 2026
        (1_709_164_800, 1_706_745_600, 1_709_251_200),  # 29 February 2024
    ],
)
def test_months_begin_and_end_in_utc(wall_s: int, starts_s: int, ends_s: int) -> None:
    assert period_of(Period.MONTH, WallNs(wall_s * SECOND)) == (starts_s * SECOND, ends_s * SECOND)


class TestBorrowing:
    def plan(self) -> tuple[LimitPlan, Rate, Rate]:
        own = rate(Window.TOTAL_TOKENS, 60, borrow=True)
        above = Rate(Level.ORGANISATION, Window.TOTAL_TOKENS, RateLimit(per_minute=600))
        return LimitPlan([above, own]), above, own

    def test_only_while_the_fleet_is_idle(self) -> None:
        plan, _, own = self.plan()
        assert not taken(plan.reserve(demand(inputs=30, outputs=30, idle=True), NOW, WALL)).borrowed
        refused(plan.reserve(demand(), NOW, WALL))
        assert taken(plan.reserve(demand(idle=True), NOW, WALL)).borrowed
        assert own.remaining(NOW) == 0

    def test_what_is_borrowed_is_not_owed(self) -> None:
        plan, above, own = self.plan()
        taken(plan.reserve(demand(inputs=30, outputs=30), NOW, WALL))
        taken(plan.reserve(demand(idle=True), NOW, WALL)).settle(NOW, 10, 200)
        assert own.backlog(NOW) == own.burst
        assert above.remaining(NOW) == 600 - 60 - 210

    def test_half_of_what_it_is_borrowed_from_stays_free(self) -> None:
        plan, above, _ = self.plan()
        while isinstance(plan.reserve(demand(idle=True), NOW, WALL), Reservation):
            pass
        assert above.remaining(NOW) == 300
        assert refused(plan.reserve(demand(idle=True), NOW, WALL)).level is Level.KEY

    def test_all_of_it_is_back_within_a_window(self) -> None:
        plan, above, own = self.plan()
        while isinstance(plan.reserve(demand(idle=True), NOW, WALL), Reservation):
            pass
        assert above.remaining(NOW + MINUTE // 2) == 600
        assert own.remaining(NOW + MINUTE) == 60

    def test_a_limit_that_does_not_lend_is_not_passed(self) -> None:
        plan = LimitPlan([rate(Window.TOTAL_TOKENS, 60, borrow=True), rate(Window.REQUESTS, 2)])
        taken(plan.reserve(demand(inputs=30, outputs=30, idle=True), NOW, WALL))
        refused(plan.reserve(demand(idle=True), NOW, WALL))

    def test_a_budget_is_never_passed(self) -> None:
        plan = LimitPlan([rate(Window.TOTAL_TOKENS, 30, borrow=True)], [], [budget(tokens=50)])
        taken(plan.reserve(demand(idle=True), NOW, WALL))
        assert refused(plan.reserve(demand(idle=True), NOW, WALL)).code == "insufficient_quota"


def test_the_headers_tell_of_the_tightest_level() -> None:
    plan = LimitPlan(
        [rate(Window.TOTAL_TOKENS, 600), Rate(Level.TENANT, Window.TOTAL_TOKENS, RateLimit(per_minute=60))]
    )
    taken(plan.reserve(demand(), NOW, WALL))
    status = plan.status(Window.TOTAL_TOKENS, NOW)
    assert status is not None
    assert (status.limit, status.remaining, status.reset_ms) == (60, 30, 30_000)
    assert plan.status(Window.REQUESTS, NOW) is None


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0ms"), (120, "120ms"), (1000, "1s"), (1001, "2s"), (60_000, "1m0s"), (90_500, "1m31s")],
)
def test_resets_are_written_as_durations(milliseconds: int, text: str) -> None:
    assert reset_text(milliseconds) == text
