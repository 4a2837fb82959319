"""Limits against their definition, through any interleaving of arrivals and ends of requests."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.tenants import (
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
from pilothouse.policy.limits.windows import TOKEN, Budget, Concurrency, Rate

DAY = 86_400 * SECOND
KEYS = ("key_a", "key_b", "key_c")  # the first two are of one tenant

DIRECTORY = TenantDirectory(
    version=1,
    organisations=(
        Organisation(
            id=OrganisationId("org"),
            name="org",
            limits=Limits(
                total_tokens=RateLimit(per_minute=900, burst=700),
                budgets=(BudgetLimit(period=Period.DAY, tokens=3000, nano_money=9000),),
            ),
        ),
    ),
    tenants=(
        Tenant(
            id=TenantId("one"),
            organisation=OrganisationId("org"),
            name="one",
            limits=Limits(
                input_tokens=RateLimit(per_minute=300), output_tokens=RateLimit(per_minute=500), concurrent_requests=3
            ),
        ),
        Tenant(
            id=TenantId("two"),
            organisation=OrganisationId("org"),
            name="two",
            limits=Limits(total_tokens=RateLimit(per_minute=120, borrow=True)),
        ),
    ),
    keys=(
        Key(
            id=KeyId("key_a"),
            tenant=TenantId("one"),
            digest=b"a",
            limits=Limits(requests=RateLimit(per_minute=10, burst=4), concurrent_requests=2),
        ),
        Key(id=KeyId("key_b"), tenant=TenantId("one"), digest=b"b"),
        Key(id=KeyId("key_c"), tenant=TenantId("two"), digest=b"c", limits=Limits(requests=RateLimit(per_minute=30))),
    ),
)


class Charge:
    """What one admission costs one rate: at first what was reserved, in the end what was used."""

    def __init__(self, at: int, units: int) -> None:
        self.at = at
        self.units = units


class LimitsMachine(RuleBasedStateMachine):
    """Three keys of two tenants of one organisation."""

    reservations = Bundle("reservations")

    def __init__(self) -> None:
        super().__init__()
        self.now = 10**15
        self.wall = 20_000 * DAY
        self.limiter = Limiter()
        self.limiter.use(DIRECTORY, self.now)
        self.charges: dict[Rate, list[Charge]] = {}
        self.of: dict[Reservation, tuple[str, dict[Rate, Charge]]] = {}
        self.live: set[Reservation] = set()
        self.spent: dict[Budget, int] = {}

    def rates(self, key: str) -> list[Rate]:
        plan = self.limiter.plan(KeyId(key), self.now)
        assert plan is not None
        return [rate for rate, _ in plan._rates]

    def slots(self, key: str) -> tuple[Concurrency, ...]:
        plan = self.limiter.plan(KeyId(key), self.now)
        assert plan is not None
        return plan._concurrency

    def everything(self) -> list[tuple[int, ...]]:
        states = self.limiter._states.values()
        return [
            *[(rate.tat, rate.returned) for state in states for rate in state.rates],
            *[(slots.active,) for state in states for slots in state.concurrency],
            *[(budget.used * (budget.ends > self.wall),) for state in states for budget in state.budgets],
        ]

    @rule(pause=st.one_of(st.integers(0, 5 * SECOND), st.integers(0, 200 * SECOND), st.just(DAY)))
    def time_passes(self, pause: int) -> None:
        self.now += pause
        self.wall += pause

    @rule(
        target=reservations,
        key=st.sampled_from(KEYS),
        inputs=st.integers(1, 200),
        outputs=st.integers(1, 300),
        nano_cost=st.integers(0, 900),
        idle=st.booleans(),
    )
    def arrive(self, key: str, inputs: int, outputs: int, nano_cost: int, idle: bool) -> Reservation | None:
        plan = self.limiter.plan(KeyId(key), self.now)
        assert plan is not None
        before = self.everything()
        found = plan.reserve(
            Demand(input_tokens=inputs, output_tokens=outputs, nano_cost=nano_cost, idle=idle), self.now, self.wall
        )
        if isinstance(found, LimitRefusal):
            assert self.everything() == before, "a refused request consumed something"
            assert found.retry_after_s is None or found.retry_after_s >= 1
            return None
        costs = dict(
            zip(
                (Window.REQUESTS, Window.INPUT_TOKENS, Window.OUTPUT_TOKENS, Window.TOTAL_TOKENS),
                (1, inputs, found.output_tokens, inputs + found.output_tokens),
                strict=True,
            )
        )
        charges = {}
        for rate in self.rates(key):
            assert rate.backlog(self.now) <= rate.burst or (found.borrowed and rate.borrow)
            if not (found.borrowed and rate.borrow):
                charge = Charge(self.now, costs[rate.window] * TOKEN)
                self.charges.setdefault(rate, []).append(charge)
                charges[rate] = charge
        assert idle or not found.borrowed
        self.of[found] = (key, charges)
        self.live.add(found)
        return found

    def settle_charges(self, found: Reservation, requests: int, inputs: int, outputs: int) -> None:
        used = {
            Window.REQUESTS: requests,
            Window.INPUT_TOKENS: inputs,
            Window.OUTPUT_TOKENS: outputs,
            Window.TOTAL_TOKENS: inputs + outputs,
        }
        for rate, charge in self.of[found][1].items():
            charge.units = used[rate.window] * TOKEN
        self.live.discard(found)

    @rule(found=reservations, inputs=st.integers(0, 250), outputs=st.integers(0, 400), nano_cost=st.integers(0, 999))
    def settle(self, found: Reservation | None, inputs: int, outputs: int, nano_cost: int) -> None:
        if found is None:
            return
        first = found in self.live
        before = self.everything()
        assert (found.settle(self.now, inputs, outputs, nano_cost) is not None) is first
        if first:
            self.settle_charges(found, 1, inputs, outputs)
        else:
            assert self.everything() == before, "a reservation ended twice"

    @rule(found=reservations)
    def release(self, found: Reservation | None) -> None:
        if found is None:
            return
        first = found in self.live
        before = self.everything()
        assert found.release(self.now) is first
        if first:
            self.settle_charges(found, 0, 0, 0)
        else:
            assert self.everything() == before, "a reservation ended twice"

    @rule(found=reservations)
    def lose(self, found: Reservation | None) -> None:
        if found is not None:
            first = found in self.live
            assert found.abandon() is first
            self.live.discard(found)

    @rule()
    def forget(self) -> None:
        busy = {self.of[each][0] for each in self.live}
        self.limiter.forget_idle(self.now)
        for key in busy:
            if self.slots(key):
                assert (Level.KEY, key) in self.limiter._states

    @invariant()
    def every_rate_is_as_if_each_request_had_asked_for_what_it_used(self) -> None:
        # The arrival time of the generic cell rate algorithm, from its definition.
        for rate, charges in self.charges.items():
            expected = total = 0
            for charge in reversed(charges):
                total += charge.units
                expected = max(expected, charge.at * rate.per_minute + total)
            assert rate.tat >= expected

    @invariant()
    def counts_are_the_live_requests(self) -> None:
        counts: dict[Concurrency, int] = {}
        for reservation in self.live:
            for slots in reservation._holder._concurrency:  # type: ignore[attr-defined]
                counts[slots] = counts.get(slots, 0) + 1
        for key in KEYS:
            for slots in self.slots(key):
                assert slots.active == counts.get(slots, 0)
                assert 0 <= slots.active <= slots.limit

    @invariant()
    def budgets_never_go_negative(self) -> None:
        for state in self.limiter._states.values():
            assert all(budget.used >= 0 for budget in state.budgets)


TestLimits = LimitsMachine.TestCase
TestLimits.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
