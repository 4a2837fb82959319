"""The talk between a worker's lease book and the authority: at a steady pace, and at once when a request has to ask."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from pilothouse.model.errors import PilothouseError
from pilothouse.model.leases import LeaseAnswers, LeaseBatch
from pilothouse.policy.limits.authority import LeaseAuthority
from pilothouse.policy.limits.lease_book import LeaseBook

INTERVAL_S = 0.1
"""How often what was spent is reported: what a crash can hide is at most what a worker spends in that time."""

_log = logging.getLogger("pilothouse.limits")


class Authority(Protocol):
    """Whoever hands out leases."""

    async def exchange(self, batches: Sequence[LeaseBatch]) -> tuple[LeaseAnswers, ...]:
        """The answers. Raises PilothouseError, limits_unavailable, when there are none in time."""


class LocalAuthority:
    """An authority in this process. For one worker with shared limits, and for tests."""

    def __init__(self, authority: LeaseAuthority) -> None:
        self._authority = authority

    async def exchange(self, batches: Sequence[LeaseBatch]) -> tuple[LeaseAnswers, ...]:
        """The answers."""
        now_us = time.monotonic_ns() // 1000
        return tuple(self._authority.handle(batch, now_us) for batch in batches)


class LeaseExchange:
    """Runs one worker's exchanges, one at a time. No request waits longer than the authority's time-out."""

    def __init__(self, book: LeaseBook, authority: Authority, *, interval_s: float = INTERVAL_S) -> None:
        self.reachable = True
        self.outages = 0
        self._book = book
        self._authority = authority
        self._interval_s = interval_s
        self._asked = asyncio.Event()
        self._waiting: list[Callable[[], None]] = []

    def ask(self, then: Callable[[], None]) -> None:
        """Call `then` after the next exchange, answered or not: a request that was told to ask may try again."""
        self._waiting.append(then)
        self._asked.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        await self._exchange((self._book.hello(),), time.monotonic_ns())
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            waiting, self._waiting = self._waiting, []
            now = time.monotonic_ns()
            batches = self._book.collect(now)
            if batches:
                await self._exchange(batches, now)
            for then in waiting:
                then()

    async def _exchange(self, batches: Sequence[LeaseBatch], sent_at: int) -> None:
        try:
            answers = await self._authority.exchange(batches)
        except PilothouseError as error:
            self._book.unanswered(time.monotonic_ns())
            if self.reachable:
                self.outages += 1
                _log.warning("the limits' authority does not answer", extra={"reason": error.message})
            self.reachable = False
            return
        if not self.reachable:
            _log.warning("the limits' authority answers again")
        self.reachable = True
        for each in answers:
            self._book.apply(each, sent_at)
