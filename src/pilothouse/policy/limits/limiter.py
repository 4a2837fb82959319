"""The limits of everybody: plans for the keys of a directory, made when a key is first used.

A hundred thousand keys of which a thousand are used cost the state of a thousand. A new directory changes limits in
place: what has been used stays used, and reservations under way end where they began.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.tenants import (
    NO_LIMITS,
    BudgetLimit,
    Key,
    Level,
    Limits,
    Organisation,
    RateLimit,
    Tenant,
    TenantDirectory,
)
from pilothouse.policy.limits.decision import RATE_WINDOWS, Window
from pilothouse.policy.limits.plan import LimitPlan
from pilothouse.policy.limits.windows import Budget, Concurrency, Rate

Subject = tuple[Level, str]
"""Whose limits: a level, and the id of an organisation, a tenant or a key."""


_State = TypeVar("_State", bound="LevelState")
_Plan = TypeVar("_Plan")


class LevelState(Protocol):
    """What is used of the limits of one organisation, tenant or key."""

    def change(self, limits: Limits, now: int) -> None:
        """Go on under other limits."""

    def is_as_new(self, now: int) -> bool:
        """Whether nothing of what has been used matters any more."""


class PlanBook(ABC, Generic[_State, _Plan]):
    """The plans of one gateway worker. `now` is monotonic, in nanoseconds."""

    def __init__(self) -> None:
        self._organisations: Mapping[OrganisationId, Organisation] = {}
        self._tenants: Mapping[TenantId, Tenant] = {}
        self._keys: Mapping[KeyId, Key] = {}
        self._plans: dict[KeyId, _Plan] = {}
        self._tenant_plans: dict[TenantId, _Plan] = {}
        self._states: dict[Subject, _State] = {}

    def use(self, directory: TenantDirectory, now: int) -> None:
        """Go on with another directory. Limits that nobody has any more are forgotten."""
        self.follow(
            {each.id: each for each in directory.organisations},
            {each.id: each for each in directory.tenants},
            {each.id: each for each in directory.keys},
            now,
        )

    def follow(
        self,
        organisations: Mapping[OrganisationId, Organisation],
        tenants: Mapping[TenantId, Tenant],
        keys: Mapping[KeyId, Key],
        now: int,
    ) -> None:
        """As `use`, with a directory that is kept by id. To be called again whenever something in it has changed."""
        self._organisations, self._tenants, self._keys = organisations, tenants, keys
        self._plans = {}
        self._tenant_plans = {}
        for subject, state in list(self._states.items()):
            limits = self._limits_of(subject)
            if limits is None:
                del self._states[subject]
            else:
                state.change(limits, now)

    def plan(self, key: KeyId, now: int) -> _Plan | None:
        """The limits of a key; `None` if the directory does not have it."""
        plan = self._plans.get(key)
        if plan is None and key in self._keys:
            plan = self._plans[key] = self._new_plan(self._states_of(self._keys[key], now))
        return plan

    def plan_of_tenant(self, tenant: TenantId, now: int) -> _Plan | None:
        """The limits of a caller that has no key of the fleet: those of its tenant and organisation."""
        plan = self._tenant_plans.get(tenant)
        if plan is None and tenant in self._tenants:
            states = [self._state(subject, now) for subject in self._above(tenant)]
            plan = self._tenant_plans[tenant] = self._new_plan(states)
        return plan

    def forget_idle(self, now: int) -> int:
        """Give up the state of keys that are as if never used, and say of how many. To be called now and then."""
        idle = [subject for subject, state in self._states.items() if subject[0] is Level.KEY and state.is_as_new(now)]
        for subject in idle:
            del self._states[subject]
            self._plans.pop(KeyId(subject[1]), None)
        return len(idle)

    @abstractmethod
    def _new_state(self, subject: Subject, limits: Limits, now: int) -> _State: ...

    @abstractmethod
    def _new_plan(self, states: Sequence[_State]) -> _Plan: ...

    def _states_of(self, key: Key, now: int) -> list[_State]:
        subjects = (*self._above(key.tenant), (Level.KEY, key.id))
        return [self._state(subject, now) for subject in subjects]

    def _above(self, tenant: TenantId) -> tuple[Subject, Subject]:
        return (Level.ORGANISATION, self._tenants[tenant].organisation), (Level.TENANT, tenant)

    def _state(self, subject: Subject, now: int) -> _State:
        state = self._states.get(subject)
        if state is None:
            limits = self._limits_of(subject)
            assert limits is not None
            state = self._states[subject] = self._new_state(subject, limits, now)
        return state

    def _limits_of(self, subject: Subject) -> Limits | None:
        level, name = subject
        found: Organisation | Tenant | Key | None
        if level is Level.KEY:
            found = self._keys.get(KeyId(name))
        elif level is Level.TENANT:
            found = self._tenants.get(TenantId(name))
        else:
            found = self._organisations.get(OrganisationId(name))
        return None if found is None else found.limits


class Limiter(PlanBook["_LimitsInUse", LimitPlan]):
    """The limits of a gateway that is alone: nobody else spends them."""

    def record_spent(self, subject: Subject, window: Window, used: int, wall: int, now: int) -> None:
        """Begin a budget's period, the one `wall` is in, with what the ledger says has been used of it already."""
        if self._limits_of(subject) is not None:
            for budget in self._state(subject, now).budgets:
                if budget.window is window:
                    budget.enter(wall)
                    budget.used = used

    def _new_state(self, subject: Subject, limits: Limits, now: int) -> "_LimitsInUse":
        return _LimitsInUse(subject[0], limits, now)

    def _new_plan(self, states: Sequence["_LimitsInUse"]) -> LimitPlan:
        return LimitPlan(
            [rate for state in states for rate in state.rates],
            [slots for state in states for slots in state.concurrency],
            [budget for state in states for budget in state.budgets],
        )


class _LimitsInUse:
    """The limits of one organisation, tenant or key, with what is used of them."""

    __slots__ = ("_level", "_limits", "budgets", "concurrency", "rates")

    def __init__(self, level: Level, limits: Limits, now: int) -> None:
        self._level = level
        self._limits = NO_LIMITS
        self.rates: tuple[Rate, ...] = ()
        self.concurrency: tuple[Concurrency, ...] = ()
        self.budgets: tuple[Budget, ...] = ()
        self.change(limits, now)

    def change(self, limits: Limits, now: int) -> None:
        """Go on under other limits."""
        if limits == self._limits:
            return
        self._limits = limits
        known = {rate.window: rate for rate in self.rates}
        self.rates = tuple(
            self._rate(known.get(window), window, limit, now)
            for window, limit in zip(RATE_WINDOWS, limits.per_minute, strict=True)
            if limit is not None
        )
        if limits.concurrent_requests is None:
            self.concurrency = ()
        else:
            slots = self.concurrency[0] if self.concurrency else Concurrency(self._level, 0)
            slots.limit = limits.concurrent_requests
            self.concurrency = (slots,)
        before = {budget.window: budget for budget in self.budgets}
        self.budgets = tuple(
            self._budget(before, spec, money=money)
            for spec in limits.budgets
            for money in (False, True)
            if (spec.nano_money if money else spec.tokens) is not None
        )

    def is_as_new(self, now: int) -> bool:
        """Whether nothing of what has been used matters any more."""
        return not (
            any(slots.active for slots in self.concurrency)
            or any(rate.backlog(now) for rate in self.rates)
            or any(budget.used for budget in self.budgets)
        )

    def _rate(self, known: Rate | None, window: Window, limit: RateLimit, now: int) -> Rate:
        if known is None:
            return Rate(self._level, window, limit)
        known.change(limit, now)
        return known

    def _budget(self, before: dict[Window, Budget], spec: BudgetLimit, *, money: bool) -> Budget:
        budget = Budget(self._level, spec, money=money)
        known = before.get(budget.window)
        if known is None:
            return budget
        known.change(spec)
        return known
