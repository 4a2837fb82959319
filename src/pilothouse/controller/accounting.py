"""What turns cost: rows from the workers' spools into the ledger, and the keeping of limits that workers share."""

import asyncio
import logging
import secrets
import time
from pathlib import Path

import msgspec

from pilothouse.controller.budgets import BudgetAlarms, spent_budgets
from pilothouse.model.control import UsageAnswered, UsageAsked
from pilothouse.model.errors import PilothouseError, Refusal
from pilothouse.model.leases import LeaseAnswers, LeaseBatch
from pilothouse.model.tenants import TenantDirectory
from pilothouse.model.units import SECOND
from pilothouse.policy.limits.authority import LeaseAuthority
from pilothouse.policy.limits.lease import LeaseSettings
from pilothouse.store.ledger import Ledger
from pilothouse.store.ledger_filling import fill_ledger
from pilothouse.store.spool import SpoolReader
from pilothouse.store.tenant_usage import MAX_RESULTS, page_of, read_query
from pilothouse.store.tenants import TenantStore

FILL_EVERY_S = 1.0
MAX_USAGE_QUESTIONS = 8
"""Tenants' questions after their usage at a time, so that they do not keep the controller's threads from the rest."""

_FORGET_EVERY = 60  # fillings
_ALARMS_EVERY = 10  # fillings

_logger = logging.getLogger(__name__)


class Accounting:
    """One controller's."""

    def __init__(self, ledger: Ledger, tenants: TenantStore, spool_dir: Path) -> None:
        self._ledger = ledger
        self._alarms = BudgetAlarms(tenants, ledger)
        self._spool = SpoolReader(spool_dir)
        term_us = LeaseSettings().term // 1000
        self._usage_questions = 0
        self._authority = LeaseAuthority(secrets.token_hex(8), _now_us(), term_us)

    async def start(self, directory: TenantDirectory) -> None:
        """Bring the ledger up to date, and let budgets begin with what it says has been spent.

        Raises:
            PilothouseError: state_unreadable.
        """
        await asyncio.to_thread(self._fill)
        for budget in await asyncio.to_thread(spent_budgets, self._ledger, directory, time.time_ns()):
            self._authority.record_used(budget.shared_name, budget.starts, budget.used)

    def answer(self, batch: LeaseBatch) -> LeaseAnswers:
        """What a worker may spend, after what it reports."""
        return self._authority.handle(batch, _now_us())

    async def usage(self, asked: UsageAsked) -> UsageAnswered:
        """A tenant's own usage, as far as the ledger has it: turns of the last second may be missing."""
        if self._usage_questions >= MAX_USAGE_QUESTIONS:
            return _no_usage(asked, "Too many ask for their usage at once.")
        self._usage_questions += 1
        try:
            query = read_query(asked.query, asked.tenant, time.time_ns() // SECOND)
            if isinstance(query, Refusal):
                return UsageAnswered(number=asked.number, refusal=query)
            sums = await asyncio.to_thread(self._ledger.tenant_usage, query)
        except PilothouseError as error:
            _logger.error("a tenant's usage cannot be read", extra={"reason": error.message})
            return _no_usage(asked, "The ledger cannot be read.")
        finally:
            self._usage_questions -= 1
        if len(sums) > MAX_RESULTS:
            message = f"The page would have more than {MAX_RESULTS} results."
            return UsageAnswered(
                number=asked.number, refusal=Refusal(code="invalid_value", message=message, param="limit")
            )
        return UsageAnswered(number=asked.number, body=msgspec.json.encode(page_of(query, sums)).decode())

    async def run(self) -> None:
        """Fill the ledger, until cancelled."""
        rounds = 0
        is_away = False
        while True:
            await asyncio.sleep(FILL_EVERY_S)
            try:
                await asyncio.to_thread(self._fill)
                if rounds % _ALARMS_EVERY == 0:
                    await asyncio.to_thread(self._alarms.check)
            except PilothouseError as error:
                if not is_away:
                    _logger.error("the ledger takes no rows; they wait in the spool", extra={"reason": error.message})
                is_away = True
            else:
                if is_away:
                    _logger.warning("the ledger takes rows again")
                is_away = False
            rounds += 1
            if rounds % _FORGET_EVERY == 0:
                self._authority.forget(_now_us())

    def _fill(self) -> None:
        fill_ledger(self._spool, self._ledger)


def _no_usage(asked: UsageAsked, message: str) -> UsageAnswered:
    return UsageAnswered(number=asked.number, refusal=Refusal(code="usage_unavailable", message=message))


def _now_us() -> int:
    return time.monotonic_ns() // 1000
