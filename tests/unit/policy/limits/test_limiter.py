from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.tenants import (
    NO_LIMITS,
    BudgetLimit,
    Key,
    Level,
    Limits,
    Organisation,
    Period,
    RateLimit,
    Tenant,
    TenantDirectory,
)
from pilothouse.model.units import SECOND
from pilothouse.policy.limits.decision import LimitRefusal, Window
from pilothouse.policy.limits.limiter import Limiter
from pilothouse.policy.limits.reservation import Demand, Reservation

NOW = 10**15
WALL = 20_000 * 86_400 * SECOND
ORG, TENANT = OrganisationId("o"), TenantId("t")
ONE, TWO = KeyId("k1"), KeyId("k2")


def directory(org: Limits = NO_LIMITS, tenant: Limits = NO_LIMITS, key: Limits = NO_LIMITS) -> TenantDirectory:
    return TenantDirectory(
        version=1,
        organisations=(Organisation(id=ORG, name="o", limits=org),),
        tenants=(Tenant(id=TENANT, organisation=ORG, name="t", limits=tenant),),
        keys=(
            Key(id=ONE, tenant=TENANT, digest=b"1", limits=key),
            Key(id=TWO, tenant=TENANT, digest=b"2", limits=key),
        ),
    )


def limiter(found: TenantDirectory) -> Limiter:
    made = Limiter()
    made.use(found, NOW)
    return made


def ask(of: Limiter, key: KeyId, tokens: int, now: int = NOW) -> Reservation | LimitRefusal:
    plan = of.plan(key, now)
    assert plan is not None
    return plan.reserve(Demand(input_tokens=0, output_tokens=tokens), now, WALL)


def tokens(per_minute: int) -> Limits:
    return Limits(total_tokens=RateLimit(per_minute=per_minute))


def test_an_unknown_key_has_no_plan() -> None:
    assert limiter(directory()).plan(KeyId("other"), NOW) is None


def test_keys_share_their_tenants_limits_and_have_their_own() -> None:
    shared = limiter(directory(tenant=tokens(100), key=tokens(80)))
    assert isinstance(ask(shared, ONE, 80), Reservation)
    own = ask(shared, ONE, 20)
    assert isinstance(own, LimitRefusal)
    assert own.level is Level.KEY
    above = ask(shared, TWO, 30)
    assert isinstance(above, LimitRefusal)
    assert above.level is Level.TENANT
    assert isinstance(ask(shared, TWO, 20), Reservation)


def test_a_limit_that_changes_keeps_what_is_used() -> None:
    changing = limiter(directory(org=tokens(100)))
    held = ask(changing, ONE, 60)
    changing.use(directory(org=tokens(200)), NOW)
    assert isinstance(ask(changing, ONE, 141), LimitRefusal)
    assert isinstance(ask(changing, ONE, 140), Reservation)
    assert isinstance(held, Reservation)
    assert held.settle(NOW, 0, 10) is not None
    # What was reserved under the old limit is not given back to the new one.
    assert isinstance(ask(changing, ONE, 1), LimitRefusal)


def test_requests_under_way_are_counted_through_a_change() -> None:
    changing = limiter(directory(key=Limits(concurrent_requests=1)))
    held = ask(changing, ONE, 1)
    changing.use(directory(key=Limits(concurrent_requests=2)), NOW)
    assert isinstance(ask(changing, ONE, 1), Reservation)
    assert isinstance(ask(changing, ONE, 1), LimitRefusal)
    assert isinstance(held, Reservation)
    held.settle(NOW, 0, 1)
    assert isinstance(ask(changing, ONE, 1), Reservation)


def test_limits_that_are_taken_away_and_keys_that_are_gone() -> None:
    changing = limiter(directory(key=tokens(10)))
    held = ask(changing, ONE, 10)
    changing.use(directory(), NOW)
    assert isinstance(ask(changing, ONE, 1000), Reservation)
    changing.use(TenantDirectory(version=2), NOW)
    assert changing.plan(ONE, NOW) is None
    assert isinstance(held, Reservation)
    assert held.settle(NOW, 0, 1) is not None


def test_a_budget_goes_on_from_the_ledger() -> None:
    daily = Limits(budgets=(BudgetLimit(period=Period.DAY, tokens=100),))
    started = limiter(directory(tenant=daily))
    started.record_spent((Level.TENANT, TENANT), Window.TOKENS_PER_DAY, 90, WALL, NOW)
    started.record_spent((Level.TENANT, "other"), Window.TOKENS_PER_DAY, 90, WALL, NOW)
    assert isinstance(ask(started, ONE, 11), LimitRefusal)
    assert isinstance(ask(started, ONE, 10), Reservation)


def test_a_budget_that_is_raised_keeps_what_is_spent() -> None:
    changing = limiter(directory(tenant=Limits(budgets=(BudgetLimit(period=Period.DAY, tokens=100),))))
    assert isinstance(ask(changing, ONE, 100), Reservation)
    changing.use(directory(tenant=Limits(budgets=(BudgetLimit(period=Period.DAY, tokens=150),))), NOW)
    assert isinstance(ask(changing, ONE, 51), LimitRefusal)
    assert isinstance(ask(changing, ONE, 50), Reservation)


def test_only_keys_that_are_as_if_never_used_are_forgotten() -> None:
    used = limiter(directory(key=tokens(60)))
    ask(used, ONE, 60)
    ask(used, TWO, 1)
    assert used.forget_idle(NOW + 2 * SECOND) == 1
    assert isinstance(ask(used, ONE, 60, NOW + 2 * SECOND), LimitRefusal)
    assert used.forget_idle(NOW + 60 * SECOND) == 1
    assert isinstance(ask(used, ONE, 60, NOW + 60 * SECOND), Reservation)
