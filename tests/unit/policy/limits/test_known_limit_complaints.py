"""What users of peers complain of about limits and slots, by thread. Those of a single plan: test_limit_plan.py."""

import pytest

from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.tenants import Key, Level, Limits, Organisation, RateLimit, Tenant, TenantDirectory
from pilothouse.model.units import SECOND
from pilothouse.policy.limits.authority import LeaseAuthority
from pilothouse.policy.limits.decision import LimitRefusal, Window
from pilothouse.policy.limits.lease import LeaseSettings
from pilothouse.policy.limits.lease_book import LeaseBook
from pilothouse.policy.limits.leased_plan import ASK
from pilothouse.policy.limits.limiter import Limiter
from pilothouse.policy.limits.plan import LimitPlan
from pilothouse.policy.limits.reservation import Demand, Reservation
from pilothouse.policy.limits.windows import Concurrency, Rate

NOW = 10**15
WALL = 1_790_000_000 * SECOND
KEY = KeyId("key")


def directory(limits: Limits) -> TenantDirectory:
    return TenantDirectory(
        version=1,
        organisations=(Organisation(id=OrganisationId("o"), name="o"),),
        tenants=(Tenant(id=TenantId("t"), organisation=OrganisationId("o"), name="t", limits=limits),),
        keys=(Key(id=KEY, tenant=TenantId("t"), digest=b"k"),),
    )


def reserved(found: object) -> Reservation:
    assert isinstance(found, Reservation)
    return found


@pytest.mark.parametrize("ending", ["settle", "release", "abandon"])
def test_t1_a_client_that_goes_leaves_no_place_taken(ending: str) -> None:
    # litellm#27955, smg#2064: the place among requests at once was not given back when a client went.
    slots = Concurrency(Level.KEY, 1)
    plan = LimitPlan([], [slots])
    for _ in range(3):
        found = reserved(plan.reserve(Demand(input_tokens=1, output_tokens=1), NOW, WALL))
        if ending == "settle":
            found.settle(NOW, 1, 1)
        elif ending == "release":
            found.release(NOW)
        else:
            found.abandon()
        found.release(NOW)  # a second end does nothing
        assert slots.active == 0


def test_t1_a_disconnect_before_the_first_token_gives_all_of_the_reservation_back() -> None:
    # litellm PR 31499
    tokens = Rate(Level.KEY, Window.TOTAL_TOKENS, RateLimit(per_minute=100))
    plan = LimitPlan([tokens])
    reserved(plan.reserve(Demand(input_tokens=50, output_tokens=50), NOW, WALL)).release(NOW)
    assert tokens.remaining(NOW) == 100


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_t3_many_gateways_admit_what_one_would(workers: int) -> None:
    # litellm#40291 and #27736, bifrost#3547: each gateway counted for itself, so that limits were multiplied.
    settings = LeaseSettings()
    authority = LeaseAuthority("a", NOW // 1000, settings.term // 1000)
    books = [LeaseBook(f"w{number}", settings) for number in range(workers)]
    for book in books:
        book.use(directory(Limits(total_tokens=RateLimit(per_minute=1000))), NOW)
    admitted = 0
    for at in range(100):
        book = books[at % workers]
        plan = book.plan(KEY, NOW)
        assert plan is not None
        demand = Demand(input_tokens=10, output_tokens=15)
        found = plan.reserve(demand, NOW, WALL)
        if found is ASK:
            for batch in book.collect(NOW):
                book.apply(authority.handle(batch, NOW // 1000), NOW)
            found = plan.reserve(demand, NOW, WALL, asked=True)
        admitted += 25 if isinstance(found, Reservation) else 0
    assert admitted == 1000


def test_t3_a_limit_on_requests_says_nothing_about_tokens() -> None:
    # AIBrix#848: tokens a minute were guessed from requests a minute.
    limiter = Limiter()
    limiter.use(directory(Limits(requests=RateLimit(per_minute=2))), NOW)
    plan = limiter.plan(KEY, NOW)
    assert plan is not None
    assert plan.status(Window.TOTAL_TOKENS, NOW) is None
    reserved(plan.reserve(Demand(input_tokens=10**6, output_tokens=10**6), NOW, WALL))


def test_t3_tokens_are_taken_at_admission_and_not_after_the_fact() -> None:
    # ai-gateway#2394: usage was charged when answers were complete, and until then everything was admitted.
    plan = LimitPlan([Rate(Level.KEY, Window.TOTAL_TOKENS, RateLimit(per_minute=100))])
    first = reserved(plan.reserve(Demand(input_tokens=10, output_tokens=80), NOW, WALL))
    assert isinstance(plan.reserve(Demand(input_tokens=10, output_tokens=1), NOW, WALL), LimitRefusal)
    first.settle(NOW, 10, 5)
    reserved(plan.reserve(Demand(input_tokens=10, output_tokens=1), NOW, WALL))


def test_t3_a_small_max_tokens_is_no_way_around_what_was_used() -> None:
    # litellm PR 37001: two tokens were reserved for what generated ten thousand.
    plan = LimitPlan([Rate(Level.KEY, Window.TOTAL_TOKENS, RateLimit(per_minute=100))])
    reserved(plan.reserve(Demand(input_tokens=1, output_tokens=1), NOW, WALL)).settle(NOW, 1, 10_000)
    refusal = plan.reserve(Demand(input_tokens=1, output_tokens=1), NOW + 90 * 60 * SECOND, WALL)
    assert isinstance(refusal, LimitRefusal)
    reserved(plan.reserve(Demand(input_tokens=1, output_tokens=1), NOW + 100 * 60 * SECOND, WALL))
