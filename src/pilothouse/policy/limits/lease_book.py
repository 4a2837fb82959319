"""Everything that one worker holds of shared limits, and what it has to tell the authority."""

from collections.abc import Iterable, Sequence

from pilothouse.model.leases import LeaseAnswers, LeaseBatch, LeaseReport
from pilothouse.model.tenants import BudgetLimit, Limits, RateLimit
from pilothouse.policy.limits.decision import RATE_WINDOWS, Window
from pilothouse.policy.limits.lease import Lease, LeaseSettings
from pilothouse.policy.limits.leased_plan import LeasedPlan
from pilothouse.policy.limits.limiter import PlanBook, Subject
from pilothouse.policy.limits.windows import BUDGET_WINDOW_OF

_Spec = RateLimit | BudgetLimit | int


class LeaseBook(PlanBook["_Leases", LeasedPlan]):
    """The counterpart of `Limiter` for workers that share their limits. `worker` names one life of one process.

    Whoever carries the messages begins with `hello`, calls `collect` about ten times a second, and at once when a
    request has to ask; one exchange at a time. `apply` takes an answer, `unanswered` says that there was none.
    """

    def __init__(self, worker: str, settings: LeaseSettings) -> None:
        super().__init__()
        self.worker = worker
        self.settings = settings
        self._touched: set[LeasedPlan] = set()
        self._sent: dict[str, Lease] = {}
        self._incarnation = ""
        self._incarnations: dict[str, str] = {}

    def hello(self) -> LeaseBatch:
        """What to say first, so that a memory that is lost later is noticed.

        An authority that has a memory for each organisation answers with incarnation "".
        """
        return LeaseBatch(worker=self.worker, scope="", incarnation="")

    def collect(self, now: int) -> tuple[LeaseBatch, ...]:
        """What to tell the authority now, one batch for each organisation. Leases without news are left out."""
        plans = list(self._touched)
        self._touched.clear()
        self._sent = {}
        seen: set[Lease] = set()
        found: dict[str, list[LeaseReport]] = {}
        for plan in plans:
            for lease, _ in plan.leases:
                if lease not in seen:
                    seen.add(lease)
                    if lease.has_news(now, self.settings):
                        self._sent[lease.limit.name] = lease
                        found.setdefault(plan.scope, []).append(lease.report(now))
            if any(lease.is_known(now) or lease.limit.name in self._sent for lease, _ in plan.leases):
                self._touched.add(plan)
        return tuple(
            LeaseBatch(
                worker=self.worker,
                scope=scope,
                incarnation=self._incarnations.get(scope, self._incarnation),
                reports=tuple(each),
            )
            for scope, each in found.items()
        )

    def apply(self, answers: LeaseAnswers, sent_at: int) -> None:
        """The authority's answer to a batch that was collected at `sent_at`."""
        if answers.scope:
            self._incarnations[answers.scope] = answers.incarnation
        if self._incarnation or not answers.scope:
            self._incarnation = answers.incarnation
        for answer in answers.answers:
            lease = self._sent.pop(answer.name, None)
            if lease is not None:
                lease.accept(answer, sent_at, answers.now_us, self.settings)

    def unanswered(self, now: int) -> None:
        """The authority did not answer what was collected. The next collection tells it again."""
        for lease in self._sent.values():
            lease.unanswered()
        self._sent = {}
        for plan in self._touched:
            plan.fall_back(now)

    def _new_state(self, subject: Subject, limits: Limits, now: int) -> "_Leases":
        return _Leases(subject, limits)

    def _new_plan(self, states: Sequence["_Leases"]) -> LeasedPlan:
        leases = [lease for state in states for lease in state.leases.values()]
        return LeasedPlan(leases, self.settings, self._touched, scope=states[0].subject[1])


class _Leases:
    """What is held of the limits of one organisation, tenant or key."""

    __slots__ = ("_limits", "leases", "subject")

    def __init__(self, subject: Subject, limits: Limits) -> None:
        self.subject = subject
        self._limits = limits
        level, name = subject
        self.leases = {window: Lease(level, name, window, spec) for window, spec in _specs(limits)}

    def change(self, limits: Limits, now: int) -> None:
        """Go on under other limits."""
        if limits == self._limits:
            return
        self._limits = limits
        known, (level, name) = self.leases, self.subject
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
