"""The fair queue through any interleaving: nothing is lost or counted twice, and its promises hold at every step."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pilothouse.model.fleet import Capacity
from pilothouse.model.tenants import Tier
from pilothouse.model.units import SECOND, DurationNs
from pilothouse.policy.fairness.queue import FairQueue, QueueSettings, TierSpec
from pilothouse.policy.fairness.ticket import Ticket, TicketState

CAPACITY = Capacity(slots=4, tokens=1000)
SETTINGS = QueueSettings(
    tiers=(
        TierSpec(tier=Tier.REALTIME, guarantee=0.5),
        TierSpec(tier=Tier.STANDARD, guarantee=0.3),
        TierSpec(tier=Tier.BATCH, guarantee=0.0, ceiling=0.8),
    ),
    quantum=200.0,
    max_waiting=12,
    max_waiting_tokens=4000,
    max_wait_ns=DurationNs(30 * SECOND),
    aging_ns=DurationNs(5 * SECOND),
)
SHARES = {"a": 1.0, "b": 0.5, "c": 0.5}


class FairQueueMachine(RuleBasedStateMachine):
    """Three tenants, one of which may hold everything, and three tiers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 10**12
        self.queue = FairQueue(SETTINGS, CAPACITY)
        self.tickets: list[Ticket] = []
        self.last_started: dict[Tier, int] = {}

    def in_state(self, state: TicketState) -> list[Ticket]:
        return [ticket for ticket in self.tickets if ticket.state is state]

    def take(self) -> None:
        waiting_before = self.in_state(TicketState.WAITING)
        held = self.held()
        dispatch = self.queue.take(self.now)
        for dropped, _ in dispatch.dropped:
            waiting_before.remove(dropped)
        for ticket in dispatch.started:
            assert ticket in waiting_before
            others = {each.tenant for each in waiting_before} - {ticket.tenant}
            if others and held[ticket.tenant]:
                assert held[ticket.tenant] + ticket.tokens <= SHARES[ticket.tenant] * CAPACITY.tokens
            aged = [
                tier
                for tier in Tier
                if any(each.tier is tier for each in waiting_before)
                and self.now - self.waits_since(tier, waiting_before) >= SETTINGS.aging_ns
            ]
            if aged and ticket.tier not in aged:
                # Only a tier of which every waiting tenant is at its share may be passed over.
                for tier in aged:
                    for each in waiting_before:
                        if each.tier is tier:
                            assert held[each.tenant] > 0
            waiting_before.remove(ticket)
            held[ticket.tenant] += ticket.tokens
            self.last_started[ticket.tier] = self.now

    def waits_since(self, tier: Tier, waiting: list[Ticket]) -> int:
        oldest = min(each.enqueued_at for each in waiting if each.tier is tier)
        return max(oldest, self.last_started.get(tier, 0))

    def held(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for ticket in self.in_state(TicketState.RUNNING):
            held[ticket.tenant] += ticket.tokens
        return held

    @rule(pause=st.integers(0, 3 * SECOND))
    def time_passes(self, pause: int) -> None:
        self.now += pause

    @rule(
        tenant=st.sampled_from(sorted(SHARES)),
        tier=st.sampled_from(Tier),
        inputs=st.integers(1, 400),
        outputs=st.integers(1, 400),
        cached=st.floats(0, 1),
        within=st.none() | st.integers(0, 20 * SECOND),
    )
    def arrive(self, tenant: str, tier: Tier, inputs: int, outputs: int, cached: float, within: int | None) -> None:
        ticket = Ticket(
            tenant,
            tier,
            inputs,
            outputs,
            uncached_tokens=int(inputs * (1 - cached)),
            kv_share=SHARES[tenant],
            deadline=None if within is None else self.now + within,
        )
        refusal = self.queue.submit(ticket, self.now)
        assert (refusal is not None) is (ticket.state is TicketState.DROPPED)
        self.tickets.append(ticket)
        if ticket.state is TicketState.RUNNING:
            self.last_started[tier] = self.now
        self.take()

    @precondition(lambda self: self.in_state(TicketState.RUNNING))
    @rule(data=st.data(), output=st.integers(0, 500))
    def finish(self, data: st.DataObject, output: int) -> None:
        ticket = data.draw(st.sampled_from(self.in_state(TicketState.RUNNING)))
        self.queue.finish(ticket, self.now, output)
        self.queue.finish(ticket, self.now, output)
        self.take()

    @precondition(lambda self: self.in_state(TicketState.RUNNING))
    @rule(data=st.data(), output=st.integers(1, 500))
    def generate(self, data: st.DataObject, output: int) -> None:
        ticket = data.draw(st.sampled_from(self.in_state(TicketState.RUNNING)))
        self.queue.first_byte(ticket)
        self.queue.progress(ticket, output)

    @precondition(lambda self: self.in_state(TicketState.WAITING))
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.in_state(TicketState.WAITING)))
        self.queue.cancel(ticket)
        assert ticket.state is TicketState.CANCELLED
        self.queue.cancel(ticket)
        self.take()

    @rule()
    def expire(self) -> None:
        for ticket, _ in self.queue.expire(self.now).dropped:
            assert ticket.state is TicketState.DROPPED
        for ticket in self.in_state(TicketState.WAITING):
            assert self.now - ticket.enqueued_at <= SETTINGS.max_wait_ns
            assert ticket.deadline is None or self.now <= ticket.deadline

    @rule()
    def preempt(self) -> None:
        running = self.in_state(TicketState.RUNNING)
        for ticket in self.queue.preempt(self.now):
            assert ticket in running
            assert not ticket.first_byte_sent
            assert ticket.preemptions == 1
        self.take()

    @invariant()
    def what_is_held_is_what_runs(self) -> None:
        running = self.in_state(TicketState.RUNNING)
        assert self.queue._slots == len(running) <= CAPACITY.slots
        assert self.queue._tokens == sum(ticket.tokens for ticket in running)
        assert self.queue._tokens <= CAPACITY.tokens or len(running) == 1
        assert {name: held.tokens for name, held in self.queue._held.items()} == dict(self.held())

    @invariant()
    def what_waits_is_counted(self) -> None:
        waiting = self.in_state(TicketState.WAITING)
        assert self.queue.waiting == len(waiting) <= SETTINGS.max_waiting
        assert self.queue.waiting_tokens == sum(ticket.tokens for ticket in waiting) <= SETTINGS.max_waiting_tokens
        assert self.queue._waiting_tenants == dict(Counter(ticket.tenant for ticket in waiting))

    @invariant()
    def an_empty_engine_leaves_nobody_waiting(self) -> None:
        if not self.in_state(TicketState.RUNNING):
            assert not self.in_state(TicketState.WAITING)


TestFairQueue = FairQueueMachine.TestCase
TestFairQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
