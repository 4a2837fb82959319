"""Everything that one worker holds of shared limits, and what it has to tell the authority."""

from collections.abc import Iterable, Sequence

from pilothouse.model.tenants import BudgetLimit, Limits, RateLimit
from pilothouse.policy.limits.authority import LeaseAnswer, LeaseReport
from pilothouse.policy.limits.decision import RATE_WINDOWS, Window
from pilothouse.policy.limits.lease import Lease, LeaseSettings
from pilothouse.policy.limits.leased_plan import LeasedPlan, Reports
from pilothouse.policy.limits.limiter import PlanBook, Subject
from pilothouse.policy.limits.windows import BUDGET_WINDOW_OF

_Spec = RateLimit | BudgetLimit | int


class LeaseBook(PlanBook["_Leases", LeasedPlan]):
    """The counterpart of `Limiter` for workers that share their limits.

    Whoever carries the messages calls `collect` about ten times a second, and at once when a request has to ask; one
    exchange at a time. `apply` takes the answers, `unanswered` says that there were none.
    """

    def __init__(self, settings: LeaseSettings) -> None:
        super().__init__()
        self.settings = settings
        self._reports = Reports()
        self._sent: dict[str, Lease] = {}

    def collect(self, now: int) -> tuple[LeaseReport, ...]:
        """What to tell the authority now. Leases of which nothing is to be told are left out."""
        reports = self._reports
        reports.generation += 1
        plans = reports.touched
        reports.touched = set()
        self._sent = {}
        seen: set[Lease] = set()
        found = []
        for plan in plans:
            for lease, _ in plan.leases:
                if lease in seen:
                    continue
                seen.add(lease)
                if lease.has_news(now, self.settings):
                    self._sent[lease.limit.name] = lease
                    found.append(lease.report(now))
            if any(lease.is_held or lease.limit.name in self._sent for lease, _ in plan.leases):
                reports.touched.add(plan)
        return tuple(found)

    def apply(self, answers: Iterable[LeaseAnswer], sent_at: int) -> None:
        """The authority's answers to what was collected at `sent_at`."""
        for answer in answers:
            lease = self._sent.pop(answer.name, None)
            if lease is not None:
                lease.accept(answer, sent_at, self.settings)

    def unanswered(self, now: int) -> None:
        """The authority did not answer what was collected. The next collection tells it again."""
        for plan in self._reports.touched:
            plan.fall_back(now)

    def _new_state(self, subject: Subject, limits: Limits, now: int) -> "_Leases":
        return _Leases(subject, limits)

    def _new_plan(self, states: Sequence["_Leases"]) -> LeasedPlan:
        leases = [lease for state in states for lease in state.leases.values()]
        return LeasedPlan(leases, self.settings, self._reports)


class _Leases:
    """What is held of the limits of one organisation, tenant or key."""

    __slots__ = ("_limits", "_subject", "leases")

    def __init__(self, subject: Subject, limits: Limits) -> None:
        self._subject = subject
        self._limits = limits
        level, name = subject
        self.leases = {window: Lease(level, name, window, spec) for window, spec in _specs(limits)}

    def change(self, limits: Limits, now: int) -> None:
        """Go on under other limits."""
        if limits == self._limits:
            return
        self._limits = limits
        known, (level, name) = self.leases, self._subject
        self.leases = {}
        for window, spec in _specs(limits):
            lease = known.get(window)
            if lease is None:
                lease = Lease(level, name, window, spec)
            else:
                lease.change(spec)
            self.leases[window] = lease

    def is_as_new(self, now: int) -> bool:
        """Whether nothing is held and nothing has to be told."""
        return not any(lease.is_held or lease.has_unreported for lease in self.leases.values())


def _specs(limits: Limits) -> Iterable[tuple[Window, _Spec]]:
    for window, rate in zip(RATE_WINDOWS, limits.per_minute, strict=True):
        if rate is not None:
            yield window, rate
    if limits.concurrent_requests is not None:
        yield Window.CONCURRENCY, limits.concurrent_requests
    for budget in limits.budgets:
        if budget.tokens is not None:
            yield BUDGET_WINDOW_OF[budget.period, False], budget
        if budget.nano_money is not None:
            yield BUDGET_WINDOW_OF[budget.period, True], budget
