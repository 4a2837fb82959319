"""What turns cost: rows from the workers' spools into the ledger, and the keeping of limits that workers share."""

import asyncio
import logging
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from pilothouse.model.errors import PilothouseError
from pilothouse.model.leases import LeaseAnswers, LeaseBatch
from pilothouse.model.tenants import BudgetLimit, Level, Limits, Period, TenantDirectory
from pilothouse.model.units import WallNs
from pilothouse.policy.limits.authority import LeaseAuthority
from pilothouse.policy.limits.lease import LeaseSettings, shared_name
from pilothouse.policy.limits.windows import BUDGET_WINDOW_OF, period_of
from pilothouse.store.ledger import Ledger
from pilothouse.store.ledger_filling import fill_ledger
from pilothouse.store.spool import SpoolReader

FILL_EVERY_S = 1.0
_FORGET_EVERY = 60  # fillings

_logger = logging.getLogger(__name__)


class Accounting:
    """One controller's."""

    def __init__(self, ledger: Ledger, spool_dir: Path) -> None:
        self._ledger = ledger
        self._spool = SpoolReader(spool_dir)
        term_us = LeaseSettings().term // 1000
        self._authority = LeaseAuthority(secrets.token_hex(8), _now_us(), term_us)

    async def start(self, directory: TenantDirectory) -> None:
        """Bring the ledger up to date, and let budgets begin with what it says has been spent.

        Raises:
            PilothouseError: state_unreadable.
        """
        await asyncio.to_thread(self._fill)
        for name, period, used in await asyncio.to_thread(spent_budgets, self._ledger, directory, time.time_ns()):
            self._authority.record_used(name, period, used)

    def answer(self, batch: LeaseBatch) -> LeaseAnswers:
        """What a worker may spend, after what it reports."""
        return self._authority.handle(batch, _now_us())

    async def run(self) -> None:
        """Fill the ledger, until cancelled."""
        rounds = 0
        while True:
            await asyncio.sleep(FILL_EVERY_S)
            try:
                await asyncio.to_thread(self._fill)
            except PilothouseError as error:
                _logger.error("the ledger takes no rows; they wait in the spool", extra={"reason": error.message})
            rounds += 1
            if rounds % _FORGET_EVERY == 0:
                self._authority.forget(_now_us())

    def _fill(self) -> None:
        fill_ledger(self._spool, self._ledger)


def spent_budgets(ledger: Ledger, directory: TenantDirectory, wall: int) -> list[tuple[str, int, int]]:
    """Of each budget: its name as a shared limit, the start of the period that `wall` is in, and what is used of it."""
    found: list[tuple[str, int, int]] = []
    spent = {
        (period, level): ledger.spent_since(period_of(period, WallNs(wall))[0], level.name.lower())
        for period in Period
        for level in Level
        if any(budget.period is period for _, budget in _budgets(directory, level))
    }
    for level in Level:
        for subject, budget in _budgets(directory, level):
            tokens, money = spent[budget.period, level].get(subject, (0, 0))
            starts, _ = period_of(budget.period, WallNs(wall))
            for is_money, limit, used in ((False, budget.tokens, tokens), (True, budget.nano_money, money)):
                if limit is not None:
                    window = BUDGET_WINDOW_OF[budget.period, is_money]
                    found.append((shared_name(level, subject, window), starts, used))
    return found


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


def _now_us() -> int:
    return time.monotonic_ns() // 1000
