import asyncio
import time
from collections.abc import Sequence

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.leases import LeaseAnswers, LeaseBatch
from pilothouse.model.tenants import Key, Limits, Organisation, RateLimit, Tenant, TenantDirectory
from pilothouse.policy.limits.authority import LeaseAuthority
from pilothouse.policy.limits.decision import LimitRefusal
from pilothouse.policy.limits.lease import LeaseSettings
from pilothouse.policy.limits.lease_book import LeaseBook
from pilothouse.policy.limits.leased_plan import ASK
from pilothouse.policy.limits.reservation import Demand, Reservation
from pilothouse.store.lease_exchange import LeaseExchange, LocalAuthority

DIRECTORY = TenantDirectory(
    version=1,
    organisations=(Organisation(id=OrganisationId("o"), name="o"),),
    tenants=(
        Tenant(
            id=TenantId("t"),
            organisation=OrganisationId("o"),
            name="t",
            limits=Limits(total_tokens=RateLimit(per_minute=60, burst=1000)),
        ),
    ),
    keys=(Key(id=KeyId("k"), tenant=TenantId("t"), digest=b"k"),),
)


class Breakable(LocalAuthority):
    def __init__(self) -> None:
        super().__init__(LeaseAuthority("one", time.monotonic_ns() // 1000, 5_000_000))
        self.broken = False

    async def exchange(self, batches: Sequence[LeaseBatch]) -> tuple[LeaseAnswers, ...]:
        if self.broken:
            raise PilothouseError("limits_unavailable", "away")
        return await super().exchange(batches)


class Worker:
    def __init__(self, authority: Breakable, name: str) -> None:
        self.book = LeaseBook(name, LeaseSettings())
        self.book.use(DIRECTORY, time.monotonic_ns())
        self.exchange = LeaseExchange(self.book, authority, interval_s=0.01)

    async def admit(self, tokens: int) -> Reservation | LimitRefusal:
        plan = self.book.plan(KeyId("k"), time.monotonic_ns())
        assert plan is not None
        demand = Demand(input_tokens=0, output_tokens=tokens)
        found = plan.reserve(demand, time.monotonic_ns(), time.time_ns())
        if found is ASK:
            answered = asyncio.Event()
            self.exchange.ask(answered.set)
            await answered.wait()
            found = plan.reserve(demand, time.monotonic_ns(), time.time_ns(), asked=True)
        assert found is not ASK
        return found


@pytest.mark.asyncio
async def test_requests_that_come_together_on_two_workers_share_one_limit() -> None:
    authority = Breakable()
    workers = [Worker(authority, name) for name in "ab"]
    runs = {asyncio.ensure_future(worker.exchange.run()) for worker in workers}
    found = await asyncio.gather(*(workers[number % 2].admit(100) for number in range(30)))
    assert sum(isinstance(each, Reservation) for each in found) == 10
    for run in runs:
        run.cancel()


@pytest.mark.asyncio
async def test_an_authority_that_is_away_refuses_and_stalls_nothing() -> None:
    authority = Breakable()
    worker = Worker(authority, "a")
    run = asyncio.ensure_future(worker.exchange.run())
    assert isinstance(await worker.admit(100), Reservation)
    authority.broken = True
    found = await worker.admit(500)
    assert isinstance(found, LimitRefusal)
    assert worker.exchange.outages == 1
    authority.broken = False
    await asyncio.sleep(0.05)
    assert isinstance(await worker.admit(500), Reservation)
    run.cancel()
