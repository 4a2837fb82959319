"""Workers that share limits, through lost messages, crashes and an authority that loses its memory."""

import random
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.leases import LeaseAnswers, LimitKind
from pilothouse.model.tenants import BudgetLimit, Key, Limits, Organisation, Period, RateLimit, Tenant, TenantDirectory
from pilothouse.model.units import SECOND, DurationNs, WallNs
from pilothouse.policy.limits.authority import LeaseAuthority
from pilothouse.policy.limits.lease import Lease, LeaseSettings
from pilothouse.policy.limits.lease_book import LeaseBook
from pilothouse.policy.limits.leased_plan import ASK, LeasedPlan
from pilothouse.policy.limits.reservation import Demand, Reservation
from pilothouse.policy.limits.windows import period_of

PER_MINUTE, BURST, SLOTS, BUDGET = 600, 300, 3, 800
KEY = KeyId("key")
LIMITS = (
    Limits(total_tokens=RateLimit(per_minute=PER_MINUTE, burst=BURST)),
    Limits(concurrent_requests=SLOTS),
    Limits(budgets=(BudgetLimit(period=Period.DAY, tokens=BUDGET),)),
)


def directory(limits: Limits) -> TenantDirectory:
    return TenantDirectory(
        version=1,
        organisations=(Organisation(id=OrganisationId("org"), name="org"),),
        tenants=(Tenant(id=TenantId("t"), organisation=OrganisationId("org"), name="t", limits=limits),),
        keys=(Key(id=KEY, tenant=TenantId("t"), digest=b"k"),),
    )


SETTINGS = LeaseSettings(term=DurationNs(5 * SECOND), margin=DurationNs(SECOND // 2))
WALL = 20_000 * 86_400 * SECOND


class Worker:
    """One life of one worker."""

    def __init__(self, name: str, limits: Limits, now: int) -> None:
        self.book = LeaseBook(name, SETTINGS)
        self.book.use(directory(limits), now)
        self.live: list[Reservation] = []

    def plan(self, now: int) -> LeasedPlan:
        plan = self.book.plan(KEY, now)
        assert plan is not None
        return plan

    def leases(self, now: int) -> Iterator[Lease]:
        return (lease for lease, _ in self.plan(now).leases)


class LeaseMachine(RuleBasedStateMachine):
    """Three workers of one key's requests. What is admitted is written down beside its time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 10**15
        self.lives = self.memories = 0
        self.authority = LeaseAuthority("memory-0", self.now // 1000, SETTINGS.term // 1000)
        self.limits = Limits()
        self.workers: list[Worker] = []
        self.admitted: dict[Reservation, tuple[int, int]] = {}  # when, and tokens
        self.crashed_at = self.lost_at = self.heard_at = 0
        self.was_away = False

    @initialize(limits=st.sampled_from(LIMITS))
    def start(self, limits: Limits) -> None:
        self.limits = limits
        self.workers = [self.new_worker() for _ in range(3)]

    def new_worker(self) -> Worker:
        self.lives += 1
        worker = Worker(f"worker-{self.lives}", self.limits, self.now)
        worker.book.apply(self.authority.handle(worker.book.hello(), self.now // 1000), self.now)
        return worker

    def exchange(self, worker: Worker, *, arrives: bool = True, answered: bool = True) -> None:
        sent_at = self.now
        batches = worker.book.collect(sent_at)
        answers: list[LeaseAnswers] = []
        if arrives:
            answers = [self.authority.handle(batch, self.now // 1000) for batch in batches]
        if arrives and answered:
            for each in answers:
                worker.book.apply(each, sent_at)
                self.heard_at = self.now
        else:
            worker.book.unanswered(self.now)

    @rule(pause=st.one_of(st.integers(0, SECOND // 5), st.integers(0, 8 * SECOND)))
    def time_passes(self, pause: int) -> None:
        end = self.now + pause
        while self.now < self.lost_at + 2 * SETTINGS.term and self.now < end:
            # An authority without a memory hears of every worker within its term.
            self.now = min(end, self.now + SETTINGS.term // 4)
            for worker in self.workers:
                self.exchange(worker)
        self.now = end
        for worker in self.workers:
            # Requests of a worker that nobody heard of for a term go on, and their slots may be others' by now.
            self.was_away |= any(lease.spent > 0 and self.now >= lease.expires_at for lease in worker.leases(self.now))

    @rule(
        worker=st.integers(0, 2),
        inputs=st.integers(1, 50),
        outputs=st.integers(20, 150),
        count=st.integers(1, 4),
        answered=st.booleans(),
    )
    def arrive(self, worker: int, inputs: int, outputs: int, count: int, answered: bool) -> None:
        chosen = self.workers[worker]
        demand = Demand(input_tokens=inputs, output_tokens=outputs)
        plan = chosen.plan(self.now)
        for _ in range(count):
            found = plan.reserve(demand, self.now, WALL)
            if found is ASK:
                self.exchange(chosen, answered=answered)
                found = plan.reserve(demand, self.now, WALL, asked=True)
            assert found is not ASK
            if isinstance(found, Reservation):
                chosen.live.append(found)
                self.admitted[found] = (self.now, inputs + found.output_tokens)

    @rule(worker=st.integers(0, 2), which=st.floats(0, 1), used=st.floats(0, 1), ending=st.sampled_from("sra"))
    def end(self, worker: int, which: float, used: float, ending: str) -> None:
        self.finish(worker, which, used=used, ending=ending)

    def finish(self, worker: int, which: float, *, used: float, ending: str) -> None:
        chosen = self.workers[worker]
        if not chosen.live:
            return
        found = chosen.live.pop(int(which * (len(chosen.live) - 1)))
        at, tokens = self.admitted[found]
        if ending == "s":
            outputs = int(found.output_tokens * used)
            assert found.settle(self.now, found.input_tokens, outputs) is not None
            tokens = found.input_tokens + outputs
        elif ending == "r":
            assert found.release(self.now)
            tokens = 0
        else:
            assert found.abandon()
        assert found.settle(self.now, 0, 0) is None
        self.admitted[found] = (at, tokens)

    @rule(worker=st.integers(0, 2), arrives=st.booleans(), answered=st.booleans())
    def tick(self, worker: int, arrives: bool, answered: bool) -> None:
        self.exchange(self.workers[worker], arrives=arrives, answered=answered)

    @property
    def may_crash(self) -> bool:
        return self.now - self.lost_at > 2 * SETTINGS.term

    @property
    def may_forget(self) -> bool:
        # What a dead worker held is charged after a term, and then lives in what the others were told.
        return self.may_crash and (not self.crashed_at or self.heard_at > self.crashed_at + SETTINGS.term)

    @precondition(lambda self: self.may_crash)
    @rule(worker=st.integers(0, 2))
    def crash(self, worker: int) -> None:
        # Nobody settles its reservations: what they took is as good as used.
        self.workers[worker] = self.new_worker()
        self.crashed_at = self.now

    @precondition(lambda self: self.may_forget)
    @rule()
    def the_authority_forgets_everything(self) -> None:
        self.memories += 1
        self.lost_at = self.now
        self.authority = LeaseAuthority(f"memory-{self.memories}", self.now // 1000, SETTINGS.term // 1000)
        if not self.limits.budgets:
            return
        # The ledger has every turn that has ended.
        spent = sum(tokens for _, tokens in self.admitted.values())
        spent -= sum(self.admitted[each][1] for worker in self.workers for each in worker.live)
        for lease in self.workers[0].leases(self.now):
            starts, _ = period_of(Period.DAY, WallNs(WALL))
            self.authority.record_used(lease.limit.name, starts, spent)

    @invariant()
    def together_they_admit_no_more_than_one_would(self) -> None:
        charges = sorted(self.admitted.values()) if self.limits.total_tokens else []
        backlog = 0
        last = 0
        for at, tokens in charges:
            backlog = max(0, backlog - (at - last) * PER_MINUTE) + tokens * 60 * SECOND
            last = at
            assert backlog <= BURST * 60 * SECOND
        if self.limits.budgets:
            assert sum(tokens for _, tokens in self.admitted.values()) <= BUDGET

    @invariant()
    def no_slot_is_given_twice(self) -> None:
        slots = 0
        for worker in self.workers:
            for lease in worker.leases(self.now):
                if lease.limit.kind is LimitKind.SLOTS and self.now < lease.expires_at:
                    slots += lease.credit + lease.spent
                    assert lease.spent >= 0
        assert slots <= SLOTS or self.was_away


@pytest.mark.parametrize(("limits", "walks"), list(zip(LIMITS, (300, 60, 150), strict=True)))
def test_random_walks(limits: Limits, walks: int) -> None:
    """Long walks with few pauses, where hypothesis seldom goes: many requests around a loss of memory."""
    for seed in range(walks):
        walk(LeaseMachine(), random.Random(seed), limits)


def walk(machine: LeaseMachine, draw: random.Random, limits: Limits) -> None:
    machine.start(limits=limits)
    for _ in range(60):
        what, worker = draw.random(), draw.randrange(3)
        if what < 0.25:
            machine.time_passes(pause=draw.choice((0, SECOND // 5, SECOND, 8 * SECOND)) * draw.randrange(1001) // 1000)
        elif what < 0.6:
            machine.arrive(
                worker=worker,
                inputs=draw.randint(1, 50),
                outputs=draw.randint(20, 150),
                count=draw.randint(1, 4),
                answered=draw.random() < 0.7,
            )
        elif what < 0.8:
            used = draw.choice((0.0, 1.0, draw.random()))
            machine.finish(worker, draw.random(), used=used, ending=draw.choice("sssrra"))
        elif what < 0.96:
            machine.tick(worker=worker, arrives=draw.random() < 0.8, answered=draw.random() < 0.6)
        elif what < 0.98:
            if machine.may_crash:
                machine.crash(worker=worker)
        elif machine.may_forget:
            machine.the_authority_forgets_everything()
        machine.together_they_admit_no_more_than_one_would()
        machine.no_slot_is_given_twice()


TestLeases = LeaseMachine.TestCase
TestLeases.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
