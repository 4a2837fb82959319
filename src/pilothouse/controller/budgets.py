"""What the ledger says has been spent of budgets: where counting begins, and when somebody should be told."""

import logging
import time
from collections.abc import Iterator

import msgspec

from pilothouse.model.tenants import BudgetLimit, Level, Limits, Period, TenantDirectory
from pilothouse.model.units import WallNs
from pilothouse.policy.limits.decision import Window
from pilothouse.policy.limits.lease import shared_name
from pilothouse.policy.limits.windows import BUDGET_WINDOW_OF, period_of
from pilothouse.store.ledger import Ledger
from pilothouse.store.tenants import TenantStore

_logger = logging.getLogger(__name__)


class SpentBudget(msgspec.Struct, frozen=True, kw_only=True):
    """One budget of one organisation, tenant or key in the period that began at `starts`."""

    level: Level
    subject: str
    window: Window
    starts: WallNs
    limit: int
    used: int
    alarm_ratios: tuple[float, ...]

    @property
    def shared_name(self) -> str:
        """What the keeper of shared limits calls it."""
        return shared_name(self.level, self.subject, self.window)


def spent_budgets(ledger: Ledger, directory: TenantDirectory, wall: int) -> list[SpentBudget]:
    """Every budget, in the period that `wall` is in. Raises PilothouseError state_unreadable."""
    spent = {
        (period, level): ledger.spent_since(period_of(period, WallNs(wall))[0], level.name.lower())
        for period in Period
        for level in Level
        if any(budget.period is period for _, budget in _budgets(directory, level))
    }
    found: list[SpentBudget] = []
    for level in Level:
        for subject, budget in _budgets(directory, level):
            tokens, money = spent[budget.period, level].get(subject, (0, 0))
            starts, _ = period_of(budget.period, WallNs(wall))
            for is_money, limit, used in ((False, budget.tokens, tokens), (True, budget.nano_money, money)):
                if limit is not None:
                    found.append(
                        SpentBudget(
                            level=level,
                            subject=subject,
                            window=BUDGET_WINDOW_OF[budget.period, is_money],
                            starts=starts,
                            limit=limit,
                            used=used,
                            alarm_ratios=budget.alarm_ratios,
                        )
                    )
    return found


class BudgetAlarms:
    """Says in the log, once in each period, that a budget has passed one of its thresholds."""

    def __init__(self, store: TenantStore, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self._raised: set[tuple[str, WallNs, float]] = set()

    def check(self) -> list[tuple[SpentBudget, float]]:
        """The thresholds that were passed since the last time. Raises PilothouseError state_unreadable."""
        budgets = spent_budgets(self._ledger, self._store.budgets(), time.time_ns())
        passed = [
            (budget, ratio)
            for budget in budgets
            for ratio in budget.alarm_ratios
            if budget.used >= budget.limit * ratio and budget.used
        ]
        now = {(budget.shared_name, budget.starts, ratio) for budget, ratio in passed}
        new = [
            (budget, ratio)
            for budget, ratio in passed
            if (budget.shared_name, budget.starts, ratio) not in self._raised
        ]
        self._raised = now
        for budget, ratio in new:
            _logger.warning(
                "budget alarm",
                extra={
                    "level_of": budget.level.name.lower(),
                    "subject": budget.subject,
                    "window": budget.window.value,
                    "threshold": ratio,
                    "used": budget.used,
                    "limit": budget.limit,
                },
            )
        return new


def _budgets(directory: TenantDirectory, level: Level) -> Iterator[tuple[str, BudgetLimit]]:
    subjects: list[tuple[str, Limits]]
    if level is Level.ORGANISATION:
        subjects = [(each.id, each.limits) for each in directory.organisations]
    elif level is Level.TENANT:
        subjects = [(each.id, each.limits) for each in directory.tenants]
    else:
        subjects = [(each.id, each.limits) for each in directory.keys]
    for name, limits in subjects:
        for budget in limits.budgets:
            yield name, budget
