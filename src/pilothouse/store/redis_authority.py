"""The lease authority for gateways on several hosts: one Lua script in Redis (or Valkey) for each batch.

All keys of a batch have the organisation as their hash tag, so that a cluster runs the script on one node. Nothing
here waits for longer than a declared time: a Redis that is slow or away means an exchange without an answer, and the
workers go on with what they hold.
"""

import asyncio
import importlib.resources
import secrets
from collections.abc import Sequence

from pilothouse.model.errors import PilothouseError
from pilothouse.model.leases import LeaseAnswer, LeaseAnswers, LeaseBatch, LeaseReport

TIMEOUT_S = 0.25
"""Longer than a healthy Redis needs by two orders of magnitude, shorter than a client would notice."""

_FIELDS = 6  # of one report's answer


class RedisAuthority:
    """The authority of the fleet `fleet` at `url`. `term_us` is how long a lease lasts."""

    def __init__(self, url: str, fleet: str, term_us: int, *, timeout_s: float = TIMEOUT_S) -> None:
        try:
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError as error:
            raise PilothouseError(
                "extra_not_installed", "Limits in Redis need its client.", hint="pip install 'pilothouse[redis]'"
            ) from error
        self._fleet = fleet
        self._term_us = term_us
        self._timeout_s = timeout_s
        self._client: Redis = Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        source = importlib.resources.files("pilothouse.store").joinpath("redis_authority.lua").read_text()
        self._script = self._client.register_script(source)

    async def exchange(self, batches: Sequence[LeaseBatch]) -> tuple[LeaseAnswers, ...]:
        """The answers to what a worker collected.

        Raises:
            PilothouseError: limits_unavailable, when there is no answer in time. The batches may have arrived or not:
                they are told again with the next.
        """
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(self._timeout_s):
                return tuple([await self._handle(batch) for batch in batches])
        except (RedisError, OSError, TimeoutError) as error:
            raise PilothouseError("limits_unavailable", f"Redis: {str(error) or type(error).__name__}") from error

    async def record_used(self, scope: str, name: str, period: int, used: int) -> None:
        """What the ledger says has been used of a budget. Raises PilothouseError: limits_unavailable."""
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(self._timeout_s):
                await self._client.hset(self._key(scope, name), mapping={"period": str(period), "used": str(used)})
        except (RedisError, OSError, TimeoutError) as error:
            raise PilothouseError("limits_unavailable", f"Redis: {str(error) or type(error).__name__}") from error

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.aclose()

    async def _handle(self, batch: LeaseBatch) -> LeaseAnswers:
        if not batch.scope:
            return LeaseAnswers(scope="", incarnation="", now_us=0)  # each organisation has a memory of its own
        keys = [
            f"pilothouse:{{{self._fleet}:{batch.scope}}}",
            *(self._key(batch.scope, each.limit.name) for each in batch.reports),
        ]
        arguments: list[str | int] = [batch.worker, batch.incarnation, secrets.token_hex(8), self._term_us]
        for report in batch.reports:
            arguments += _arguments(report)
        incarnation, now_us, *numbers = await self._script(keys=keys, args=arguments)
        return LeaseAnswers(
            scope=batch.scope,
            incarnation=incarnation,
            now_us=int(now_us),
            answers=tuple(
                _answer(report.limit.name, numbers[at * _FIELDS : (at + 1) * _FIELDS])
                for at, report in enumerate(batch.reports)
            ),
        )

    def _key(self, scope: str, name: str) -> str:
        return f"pilothouse:{{{self._fleet}:{scope}}}:{name}"


def _arguments(report: LeaseReport) -> list[str | int]:
    limit = report.limit
    return [
        limit.kind.value,
        limit.limit,
        limit.burst,
        limit.period,
        report.spent,
        report.refunded,
        report.mark,
        report.keep,
        report.want,
        report.need,
        report.ahead,
        report.known_spent,
        report.known_under_way,
        report.known_used,
        report.known_returned,
    ]


def _answer(name: str, numbers: Sequence[str]) -> LeaseAnswer:
    held, left, spent, refunded, used, returned = map(int, numbers)
    return LeaseAnswer(name=name, held=held, left=left, spent=spent, refunded=refunded, used=used, returned=returned)
