from collections.abc import Sequence

import pytest

from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.tenants import BudgetLimit, Key, Limits, Organisation, Period, RateLimit, Tenant, TenantDirectory
from pilothouse.model.units import SECOND, DurationNs
from pilothouse.policy.limits.authority import LeaseAuthority
from pilothouse.policy.limits.decision import LimitRefusal, Window
from pilothouse.policy.limits.lease import FailMode, Lease, LeaseSettings
from pilothouse.policy.limits.lease_book import LeaseBook
from pilothouse.policy.limits.leased_plan import ASK, LeasedPlan
from pilothouse.policy.limits.reservation import Demand, Reservation

KEY = KeyId("key")
WALL = 20_000 * 86_400 * SECOND
TERM = 5 * SECOND
TOKENS = Limits(total_tokens=RateLimit(per_minute=600, burst=300))
SLOTS = Limits(concurrent_requests=3)
BUDGET = Limits(budgets=(BudgetLimit(period=Period.DAY, tokens=300),))


class Fleet:
    """Workers of one authority, and what goes between them."""

    def __init__(self, limits: Limits, workers: int = 2, **settings: object) -> None:
        self.now = 10**15
        self.settings = LeaseSettings(term=DurationNs(TERM), **settings)  # type: ignore[arg-type]
        self.limits = limits
        self.authority = LeaseAuthority("first", self.now // 1000, TERM // 1000)
        self.books = [self.book(f"worker-{number}") for number in range(workers)]
        self.reachable = True

    def book(self, name: str) -> LeaseBook:
        book = LeaseBook(name, self.settings)
        book.apply(self.authority.handle(book.hello(), self.now // 1000), self.now)
        self.use(book, self.limits)
        return book

    def use(self, book: LeaseBook, limits: Limits) -> None:
        book.use(
            TenantDirectory(
                version=1,
                organisations=(Organisation(id=OrganisationId("org"), name="org"),),
                tenants=(Tenant(id=TenantId("t"), organisation=OrganisationId("org"), name="t", limits=limits),),
                keys=(Key(id=KEY, tenant=TenantId("t"), digest=b"k"),),
            ),
            self.now,
        )

    def plan(self, worker: int = 0) -> LeasedPlan:
        plan = self.books[worker].plan(KEY, self.now)
        assert plan is not None
        return plan

    def lease(self, worker: int = 0) -> Lease:
        return self.plan(worker).leases[0][0]

    def exchange(self, worker: int = 0) -> None:
        book = self.books[worker]
        for batch in book.collect(self.now):
            if self.reachable:
                book.apply(self.authority.handle(batch, self.now // 1000), self.now)
        if not self.reachable:
            book.unanswered(self.now)

    def ask(self, worker: int = 0, tokens: int = 100) -> Reservation | LimitRefusal:
        demand = Demand(input_tokens=0, output_tokens=tokens)
        found = self.plan(worker).reserve(demand, self.now, WALL)
        if found is ASK:
            self.exchange(worker)
            found = self.plan(worker).reserve(demand, self.now, WALL, asked=True)
        assert found is not ASK
        return found

    def admitted(self, tries: Sequence[tuple[int, int]]) -> list[bool]:
        return [isinstance(self.ask(worker, tokens), Reservation) for worker, tokens in tries]

    def wait(self, seconds: float, *, ticks: bool = True) -> None:
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.now = min(end, self.now + SECOND // 10)
            if ticks:
                for worker in range(len(self.books)):
                    self.exchange(worker)


@pytest.mark.parametrize("limits", [TOKENS, BUDGET])
def test_workers_together_admit_what_one_would(limits: Limits) -> None:
    # litellm#40291, bifrost#3547: each replica admitted the whole limit.
    fleet = Fleet(limits)
    assert fleet.admitted([(0, 100), (1, 100), (0, 100), (1, 100), (0, 1)]) == [True, True, True, False, False]


def test_slots_are_used_again_without_asking() -> None:
    fleet = Fleet(SLOTS, workers=1)
    first, *_ = [fleet.ask() for _ in range(3)]
    assert isinstance(fleet.ask(), LimitRefusal)
    assert isinstance(first, Reservation)
    first.settle(fleet.now, 0, 10)
    fleet.reachable = False
    assert isinstance(fleet.ask(), Reservation)


def test_a_request_that_a_worker_has_credit_for_does_not_ask() -> None:
    fleet = Fleet(TOKENS)
    fleet.ask(tokens=50)
    fleet.exchange()
    assert fleet.lease().credit > 0
    demand = Demand(input_tokens=0, output_tokens=fleet.lease().credit)
    assert isinstance(fleet.plan().reserve(demand, fleet.now, WALL), Reservation)


def test_who_asks_while_the_authority_is_asked_waits_for_its_next_answer() -> None:
    """The answer to what one asked is not taken for one to what another asked since."""
    fleet = Fleet(Limits(total_tokens=RateLimit(per_minute=600), requests=RateLimit(per_minute=600)))
    book, demand = fleet.books[0], Demand(input_tokens=0, output_tokens=100)
    assert fleet.plan().reserve(demand, fleet.now, WALL) is ASK
    (batch,) = book.collect(fleet.now)
    for _ in range(3):
        assert fleet.plan().reserve(demand, fleet.now, WALL) is ASK
    book.apply(fleet.authority.handle(batch, fleet.now // 1000), fleet.now)
    assert isinstance(fleet.plan().reserve(demand, fleet.now, WALL, asked=True), Reservation)
    fleet.exchange()
    for _ in range(3):
        assert isinstance(fleet.plan().reserve(demand, fleet.now, WALL, asked=True), Reservation)


def test_what_was_asked_without_an_answer_is_not_asked_for_ever() -> None:
    fleet = Fleet(TOKENS)
    fleet.reachable = False
    for _ in range(5):
        assert isinstance(fleet.ask(tokens=100), LimitRefusal)
    fleet.reachable = True
    assert isinstance(fleet.ask(tokens=100), Reservation)
    assert fleet.lease().credit == 0, "and 500 tokens of requests that are gone are not held"


def test_a_request_keeps_what_it_has_of_one_limit_while_it_asks_for_another() -> None:
    fleet = Fleet(Limits(requests=RateLimit(per_minute=60), total_tokens=RateLimit(per_minute=600)))
    first = fleet.ask(tokens=300)
    assert isinstance(first, Reservation)
    first.settle(fleet.now, 0, 1)
    for _ in range(3):
        fleet.now += SECOND // 100
        assert isinstance(fleet.ask(tokens=100), Reservation)


def test_an_answer_that_is_lost_takes_nothing_from_anybody() -> None:
    """A worker that holds too little for its request gives it back: the authority may give it to another."""
    fleet = Fleet(TOKENS)
    first = fleet.ask(worker=1, tokens=273)
    assert isinstance(first, Reservation)
    first.settle(fleet.now, 0, 189)  # it holds 84 now
    demand = Demand(input_tokens=0, output_tokens=112)
    assert fleet.plan(1).reserve(demand, fleet.now, WALL) is ASK
    (batch,) = fleet.books[1].collect(fleet.now)
    fleet.authority.handle(batch, fleet.now // 1000)
    fleet.books[1].unanswered(fleet.now)
    admitted = 189 + sum(tokens for worker, tokens in ((0, 40), (1, 72)) if _admitted(fleet.ask(worker, tokens)))
    assert admitted <= 300


def _admitted(found: Reservation | LimitRefusal) -> bool:
    return isinstance(found, Reservation)


def test_what_a_quiet_worker_holds_is_soon_the_others() -> None:
    fleet = Fleet(TOKENS)
    for _ in range(3):
        fleet.ask(0, 20)
        fleet.exchange(0)
    assert fleet.lease(0).credit > 0
    fleet.wait(4)
    assert fleet.lease(0).credit == 0
    assert fleet.admitted([(1, 270)]) == [True]


def test_what_is_not_used_comes_back_to_everybody() -> None:
    fleet = Fleet(TOKENS)
    found = fleet.ask(0, 300)
    fleet.exchange(0)
    assert isinstance(found, Reservation)
    assert fleet.admitted([(1, 100)]) == [False]
    found.settle(fleet.now, 0, 100)
    fleet.exchange(0)
    assert fleet.admitted([(1, 175), (1, 26)]) == [True, False]


def test_unused_reservations_are_not_saved_up() -> None:
    fleet = Fleet(TOKENS)
    first = fleet.ask(0, 300)
    fleet.wait(30.5)
    assert fleet.admitted([(1, 300)]) == [True]
    assert isinstance(first, Reservation)
    first.release(fleet.now)
    fleet.exchange(0)
    assert fleet.admitted([(0, 100)]) == [False]


def test_a_request_refused_after_all_gives_back_at_once() -> None:
    fleet = Fleet(TOKENS, workers=1)
    found = fleet.ask(0, 300)
    assert isinstance(found, Reservation)
    found.release(fleet.now)
    fleet.reachable = False
    assert isinstance(fleet.ask(0, 300), Reservation)


def test_what_is_used_beyond_the_reservation_is_owed() -> None:
    fleet = Fleet(TOKENS)
    found = fleet.ask(0, 100)
    assert isinstance(found, Reservation)
    found.settle(fleet.now, 0, 400)
    fleet.exchange(0)
    refusal = fleet.ask(1, 10)
    assert isinstance(refusal, LimitRefusal)
    fleet.wait(10)
    assert fleet.admitted([(1, 10)]) == [False]
    fleet.wait(1.1)
    assert fleet.admitted([(1, 10)]) == [True]


@pytest.mark.parametrize("limits", [TOKENS, BUDGET])
def test_what_a_dead_worker_held_counts_as_spent_after_its_term(limits: Limits) -> None:
    fleet = Fleet(limits)
    assert fleet.admitted([(0, 200)]) == [True]  # spent, and not reported yet
    fleet.books[0] = fleet.book("worker-2")
    assert fleet.admitted([(1, 150)]) == [False]
    fleet.wait(5.1)
    # What is held does not fill up meanwhile: the rest was full all the time.
    assert fleet.admitted([(1, 101), (1, 100)]) == [False, True]


def test_a_dead_workers_slots_are_free_after_its_term() -> None:
    fleet = Fleet(SLOTS)
    assert fleet.admitted([(0, 1)] * 3) == [True] * 3
    fleet.books[0] = fleet.book("worker-2")
    assert fleet.admitted([(1, 1)]) == [False]
    fleet.wait(5.1)
    assert fleet.admitted([(1, 1)] * 4) == [True, True, True, False]


def test_a_lease_is_not_used_after_its_term() -> None:
    fleet = Fleet(TOKENS, workers=1)
    fleet.ask(tokens=50)
    fleet.exchange()
    assert fleet.lease().credit > 0
    fleet.reachable = False
    fleet.wait(4.4)
    assert fleet.now < fleet.lease().expires_at
    fleet.wait(0.2)
    assert fleet.now >= fleet.lease().expires_at
    refusal = fleet.ask(tokens=1)
    assert isinstance(refusal, LimitRefusal)
    assert (refusal.code, refusal.retry_after_s) == ("limits_unavailable", 1)


def test_what_was_spent_of_a_lease_that_ended_is_charged_once() -> None:
    fleet = Fleet(TOKENS, workers=1)
    fleet.ask(tokens=200)
    fleet.reachable = False
    fleet.wait(6)
    fleet.reachable = True
    # 200 of the dead lease, charged when it was found to have ended, now.
    assert fleet.admitted([(0, 101)]) == [False]
    assert fleet.admitted([(0, 100)]) == [True]


def test_open_to_a_cap_while_the_authority_is_away() -> None:
    fleet = Fleet(TOKENS, workers=1, fail_mode=FailMode.OPEN, open_ratio=0.5)
    fleet.reachable = False
    assert fleet.admitted([(0, 100), (0, 50), (0, 10)]) == [True, True, False]
    fleet.wait(2)
    assert fleet.admitted([(0, 10), (0, 10)]) == [True, False]
    fleet.reachable = True
    fleet.wait(0.2)
    assert fleet.admitted([(0, 300), (0, 10)]) == [True, False]


@pytest.mark.parametrize(("limits", "tokens"), [(SLOTS, 1), (BUDGET, 150)])
def test_open_to_a_cap_for_what_is_no_rate(limits: Limits, tokens: int) -> None:
    fleet = Fleet(limits, workers=1, fail_mode=FailMode.OPEN, open_ratio=0.5)
    fleet.reachable = False
    found = fleet.ask(tokens=tokens)
    assert isinstance(found, Reservation)
    assert fleet.admitted([(0, tokens)]) == [False]
    found.settle(fleet.now, 0, 1)
    assert fleet.admitted([(0, tokens)]) == [limits is SLOTS]


def test_an_authority_without_a_memory_hands_out_nothing_for_a_term() -> None:
    fleet = Fleet(TOKENS)
    assert fleet.admitted([(0, 200)]) == [True]
    fleet.exchange(0)
    fleet.authority = LeaseAuthority("second", fleet.now // 1000, TERM // 1000)
    assert fleet.admitted([(1, 50)]) == [False]
    fleet.wait(5.1)
    assert fleet.admitted([(1, 152), (1, 149)]) == [False, True]


def test_a_refund_whose_answer_is_lost_is_not_given_twice_to_a_worker_that_was_away() -> None:
    fleet = Fleet(TOKENS, workers=1)
    found = fleet.ask(tokens=300)
    assert isinstance(found, Reservation)
    fleet.exchange()
    found.settle(fleet.now, 0, 220)
    (batch,) = fleet.books[0].collect(fleet.now)
    fleet.authority.handle(batch, fleet.now // 1000)
    fleet.books[0].unanswered(fleet.now)
    fleet.wait(6, ticks=False)
    # 60 have drained, 80 came back once, and 10 that it was given ahead were charged when its lease ended.
    assert fleet.admitted([(0, 131), (0, 130)]) == [False, True]


def test_what_nobody_had_heard_of_is_charged_beside_what_others_were_told_before_the_loss() -> None:
    fleet = Fleet(TOKENS)
    assert fleet.admitted([(0, 67), (0, 67)]) == [True, True]  # the second is not reported yet
    assert fleet.admitted([(1, 59)]) == [True]
    fleet.exchange(1)
    fleet.authority = LeaseAuthority("second", fleet.now // 1000, TERM // 1000)
    fleet.exchange(0)
    fleet.exchange(1)
    fleet.wait(5)
    # 193 used, 50 of them drained.
    assert fleet.admitted([(1, 158), (1, 157)]) == [False, True]


def test_what_was_under_way_at_a_loss_counts_in_a_budget_beside_the_ledger() -> None:
    fleet = Fleet(BUDGET)
    ended, under_way = fleet.ask(0, 100), fleet.ask(0, 120)
    assert isinstance(ended, Reservation)
    assert isinstance(under_way, Reservation)
    ended.settle(fleet.now, 0, 50)
    fleet.exchange(0)
    fleet.authority = LeaseAuthority("second", fleet.now // 1000, TERM // 1000)
    limit = fleet.lease(0).limit
    fleet.authority.record_used(limit.name, limit.period, 50)
    under_way.settle(fleet.now, 0, 20)  # after the ledger was read
    fleet.wait(5.1)
    assert fleet.admitted([(1, 231), (1, 230)]) == [False, True]


def test_what_a_worker_did_not_spend_of_a_budget_while_it_was_away_comes_back_with_it() -> None:
    fleet = Fleet(BUDGET)
    assert fleet.admitted([(0, 100)]) == [True]
    fleet.exchange(0)
    fleet.lease(0).ask(100)
    fleet.exchange(0)  # it holds a hundred more
    fleet.reachable = False
    fleet.wait(6)
    fleet.reachable = True
    assert fleet.admitted([(1, 101), (1, 100)]) == [False, True]
    assert fleet.admitted([(0, 101), (0, 100)]) == [False, True]


def test_budgets_are_told_by_the_ledger_after_a_loss() -> None:
    fleet = Fleet(BUDGET)
    found = fleet.ask(0, 200)
    assert isinstance(found, Reservation)
    found.settle(fleet.now, 0, 200)
    fleet.exchange(0)
    fleet.authority = LeaseAuthority("second", fleet.now // 1000, TERM // 1000)
    limit = fleet.lease(0).limit
    fleet.authority.record_used(limit.name, limit.period, 200)
    fleet.wait(5.1)
    assert fleet.admitted([(1, 101), (1, 100)]) == [False, True]


def test_a_budget_begins_again_with_its_period() -> None:
    fleet = Fleet(BUDGET, workers=1)
    assert fleet.admitted([(0, 300), (0, 1)]) == [True, False]
    tomorrow = WALL + 86_400 * SECOND
    demand = Demand(input_tokens=0, output_tokens=300)
    assert fleet.plan().reserve(demand, fleet.now, tomorrow) is ASK
    fleet.exchange()
    assert isinstance(fleet.plan().reserve(demand, fleet.now, tomorrow, asked=True), Reservation)


def test_a_report_that_arrives_twice_changes_nothing() -> None:
    fleet = Fleet(TOKENS)
    fleet.ask(0, 100)
    batch = fleet.books[0].collect(fleet.now)[0]
    first = fleet.authority.handle(batch, fleet.now // 1000)
    second = fleet.authority.handle(batch, fleet.now // 1000)
    assert first.answers[0].used == second.answers[0].used
    assert second.answers[0].left <= first.answers[0].left


def test_limits_change_in_place() -> None:
    fleet = Fleet(TOKENS, workers=1)
    assert fleet.admitted([(0, 300), (0, 1)]) == [True, False]
    fleet.use(fleet.books[0], Limits(total_tokens=RateLimit(per_minute=600, burst=500)))
    assert fleet.admitted([(0, 200), (0, 1)]) == [True, False]


def test_the_headers_tell_what_everybody_has_left() -> None:
    fleet = Fleet(TOKENS)
    fleet.ask(0, 100)
    fleet.exchange(0)
    status = fleet.plan(0).status(Window.TOTAL_TOKENS, fleet.now)
    assert status is not None
    assert (status.limit, status.remaining, status.reset_ms) == (600, 200, 10_000)


def test_idle_leases_are_forgotten() -> None:
    fleet = Fleet(Limits(), workers=1)
    fleet.ask()
    assert fleet.books[0].forget_idle(fleet.now) == 1
    fleet.ask()


def test_the_authority_forgets_limits_that_are_as_if_never_used() -> None:
    fleet = Fleet(TOKENS)
    fleet.ask(0, 100)
    fleet.wait(1)
    fleet.authority.forget(fleet.now // 1000)
    assert len(fleet.authority._states) == 1
    fleet.wait(60)
    fleet.authority.forget(fleet.now // 1000)
    assert not fleet.authority._states
