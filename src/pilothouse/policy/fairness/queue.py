"""The queue before a deployment: who is next when its capacity is used up.

Requests wait here and not in the engine, so that the order can still change:

    Waiting > Running > Finished
            > Dropped            its deadline cannot be met, or it waited too long
            > Cancelled          its client went away
    Running > Waiting            preempted for a more urgent tier, before its first byte

Between tiers: one that waits and has less than its guaranteed share goes first, the most urgent first; then the others,
the most urgent first, up to their ceilings. Within a tier: virtual token counters (`fairness_core.py`). What no rule
may hold back for long is stated by the aging bound: a tier with waiting requests that has not been served for
`aging_ns` gets the next free place, and nothing else is admitted until its request fits.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import Capacity
from pilothouse.model.tenants import Tier
from pilothouse.model.units import SECOND, DurationNs
from pilothouse.policy.fairness.fairness_core import FairCounters
from pilothouse.policy.fairness.ticket import Ticket, TicketState

MAX_PREEMPTIONS = 1
"""How often one request may lose its place, so that work begins to end."""

_RATE_WINDOW = 10 * SECOND  # over which the speed of the deployment is learned
_LEAST_SAMPLE = SECOND // 10


class TierSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tier's part of a deployment: what it gets when it asks, and what it never has more of. Ratios of capacity."""

    tier: Tier
    guarantee: float
    ceiling: float = 1.0


DEFAULT_TIERS = (
    TierSpec(tier=Tier.REALTIME, guarantee=0.5),
    TierSpec(tier=Tier.STANDARD, guarantee=0.4),
    TierSpec(tier=Tier.BATCH, guarantee=0.1, ceiling=0.9),
)
"""Batch never has the last tenth, so that a realtime request finds room at once."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and rules of one queue. The tiers are in the order of their urgency.

    `quantum` is in units of service (see `fairness_core.py`). A deployment's capacity is given apart, since it
    changes with its replicas.
    """

    tiers: tuple[TierSpec, ...] = DEFAULT_TIERS
    quantum: float = 4096.0
    max_waiting: int = 4096
    max_waiting_tokens: int = 4_000_000
    max_wait_ns: DurationNs = DurationNs(120 * SECOND)
    aging_ns: DurationNs = DurationNs(10 * SECOND)


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """What became of waiting requests: those to be sent to the engine, and those that are refused after all."""

    started: tuple[Ticket, ...] = ()
    dropped: tuple[tuple[Ticket, Refusal], ...] = ()


class FairQueue:
    """The queue of one deployment in one gateway worker. Times are monotonic nanoseconds."""

    def __init__(self, settings: QueueSettings, capacity: Capacity) -> None:
        self.settings = settings
        self.capacity = capacity
        self.waiting = 0
        self.waiting_tokens = 0
        self._tiers = {spec.tier: _TierQueue(spec, settings.quantum) for spec in settings.tiers}
        self._order = tuple(self._tiers.values())
        self._slots = 0
        self._tokens = 0
        self._held: dict[str, _Holding] = {}
        self._waiting_tenants: dict[str, int] = {}
        self._speed = _Speed()

    @property
    def idle(self) -> bool:
        """Nobody waits, and a quarter of the capacity is free: what limits may be passed by."""
        return self.waiting == 0 and 4 * self._tokens <= 3 * self.capacity.tokens and self._slots < self.capacity.slots

    def submit(self, ticket: Ticket, now: int) -> Refusal | None:
        """A new request. After it the ticket is Running, to be sent at once, or Waiting; or it is refused."""
        tier = self._tiers[ticket.tier]
        ticket.enqueued_at = now
        if self.waiting == 0 and self._fits(ticket) and self._below_ceiling(tier, ticket):
            tier.counters.pass_through(ticket.tenant, ticket.weight)
            self._start(tier, ticket, now)
            return None
        refusal = self._no_place(tier, ticket, now)
        if refusal is None:
            self._wait(tier, ticket, now)
        else:
            ticket.state = TicketState.DROPPED
        return refusal

    def take(self, now: int) -> Dispatch:
        """Start whoever is next, as long as there is room. To be called after every change."""
        started: list[Ticket] = []
        dropped: list[tuple[Ticket, Refusal]] = []
        while self.waiting and self._slots < self.capacity.slots:
            ticket = self._next(now, dropped)
            if ticket is None:
                break
            tier = self._tiers[ticket.tier]
            self._remove(tier, ticket)
            self._start(tier, ticket, now)
            tier.waits_since = now if tier.clients else _NEVER
            started.append(ticket)
        return Dispatch(started=tuple(started), dropped=tuple(dropped))

    def progress(self, ticket: Ticket, output_tokens: int) -> None:
        """So many tokens have been generated: what goes beyond the expected is charged as it comes."""
        if ticket.state is TicketState.RUNNING and output_tokens > ticket.charged_output:
            self._tiers[ticket.tier].counters.charge(ticket.tenant, 0, output_tokens - ticket.charged_output)
            ticket.charged_output = output_tokens

    def first_byte(self, ticket: Ticket) -> None:
        """The client has seen something of the answer: the request is not preempted any more."""
        ticket.first_byte_sent = True
        self._tiers[ticket.tier].silent.pop(ticket, None)

    def finish(self, ticket: Ticket, now: int, output_tokens: int, uncached_tokens: int | None = None) -> None:
        """A running request ended after so many tokens; whoever calls takes next. Does nothing the second time.

        `uncached_tokens`: the part of its input that the engine really had to compute, if it told.
        """
        if ticket.state is not TicketState.RUNNING:
            return
        ticket.state = TicketState.FINISHED
        tier = self._tiers[ticket.tier]
        uncached = ticket.uncached_tokens if uncached_tokens is None else uncached_tokens
        tier.counters.charge(ticket.tenant, uncached - ticket.uncached_tokens, output_tokens - ticket.charged_output)
        self._free(tier, ticket)
        if self.waiting:
            self._speed.note(ticket.tokens, now)
        else:
            self._speed.pause(now)

    def cancel(self, ticket: Ticket) -> None:
        """Its client went away while it waited. A running request is finished instead."""
        if ticket.state is TicketState.WAITING:
            self._remove(self._tiers[ticket.tier], ticket)
            ticket.state = TicketState.CANCELLED

    def expire(self, now: int) -> Dispatch:
        """Drop what waits for too long, or can no longer meet its deadline. To be called now and then."""
        dropped: list[tuple[Ticket, Refusal]] = []
        for tier in self._order:
            for client in list(tier.clients.values()):
                for ticket in list(client):
                    refusal = self._too_late(ticket, now)
                    if refusal is not None:
                        self._drop(tier, ticket, refusal, dropped)
        return Dispatch(dropped=tuple(dropped))

    def preempt(self, now: int) -> tuple[Ticket, ...]:
        """Make room for a more urgent tier that has less than its guarantee.

        The newest requests of less urgent tiers of which nobody has seen a byte go back to the head of their tenants'
        queues, if that makes enough room. Whoever calls aborts them at the engine, and takes next.
        """
        for tier in self._order:
            if not tier.clients or tier.held_tokens >= tier.spec.guarantee * self.capacity.tokens:
                continue
            ticket = self._head(tier, now, [])
            if ticket is None or self._fits(ticket):
                continue
            victims = self._victims(tier, ticket)
            for victim in victims:
                self._send_back(victim, now)
            return victims
        return ()

    def export(self) -> dict[str, dict[str, float]]:
        """The counters of each tier, to be handed to the worker that comes next."""
        return {tier.spec.tier.value: tier.counters.export() for tier in self._order}

    def restore(self, counters: dict[str, dict[str, float]]) -> None:
        """Go on from another worker's counters. For a queue that is new."""
        for tier in self._order:
            tier.counters.restore(counters.get(tier.spec.tier.value, {}))

    # Who is next.

    def _next(self, now: int, dropped: list[tuple[Ticket, Refusal]]) -> Ticket | None:
        aged = self._aged(now)
        if aged is not None:
            ticket = self._head(aged, now, dropped)
            if ticket is not None:
                return ticket if self._fits(ticket) else None
        for tier in self._in_turn():
            ticket = self._head(tier, now, dropped)
            if ticket is not None and self._below_ceiling(tier, ticket):
                return ticket if self._fits(ticket) else None
        return None

    def _aged(self, now: int) -> "_TierQueue | None":
        """The tier that has waited longest for being served, if that is longer than the aging bound."""
        tier = min(self._order, key=lambda each: each.waits_since)
        return tier if now - tier.waits_since >= self.settings.aging_ns else None

    def _in_turn(self) -> Iterator["_TierQueue"]:
        """Tiers below their guarantee, then the others; the most urgent first in both."""
        waiting = [tier for tier in self._order if tier.clients]
        below = [tier.held_tokens < tier.spec.guarantee * self.capacity.tokens for tier in waiting]
        yield from (tier for tier, is_below in zip(waiting, below, strict=True) if is_below)
        yield from (tier for tier, is_below in zip(waiting, below, strict=True) if not is_below)

    def _head(self, tier: "_TierQueue", now: int, dropped: list[tuple[Ticket, Refusal]]) -> Ticket | None:
        """The tier's next request; those that have become too late on the way are dropped."""
        while True:
            client = tier.counters.choose(lambda name: self._within_share(tier, name), tier.uncached_ratio)
            if client is None:
                return None
            ticket = next(iter(tier.clients[client]))
            refusal = self._too_late(ticket, now)
            if refusal is None:
                return ticket
            self._drop(tier, ticket, refusal, dropped)

    def _within_share(self, tier: "_TierQueue", tenant: str) -> bool:
        """Whether a tenant may have one more request under way while others wait. It always may have one."""
        held = self._held.get(tenant)
        if held is None or len(self._waiting_tenants) == 1:
            return True
        ticket = next(iter(tier.clients[tenant]))
        return (
            held.tokens + ticket.tokens <= ticket.kv_share * self.capacity.tokens
            and held.slots + 1 <= ticket.kv_share * self.capacity.slots
        )

    def _fits(self, ticket: Ticket) -> bool:
        """Whether there is room; for a request that is larger than everything, when there is nothing else."""
        if self._slots >= self.capacity.slots:
            return False
        return self._tokens + ticket.tokens <= self.capacity.tokens or self._slots == 0

    def _below_ceiling(self, tier: "_TierQueue", ticket: Ticket) -> bool:
        held = tier.held_tokens
        return not held or held + ticket.tokens <= tier.spec.ceiling * self.capacity.tokens

    # Who may not wait.

    def _no_place(self, tier: "_TierQueue", ticket: Ticket, now: int) -> Refusal | None:
        settings = self.settings
        if self.waiting >= settings.max_waiting or self.waiting_tokens + ticket.tokens > settings.max_waiting_tokens:
            return Refusal(code="queue_full", message="Too many requests are waiting for this model.")
        if ticket.deadline is not None:
            ahead = sum(each.tokens for each in tier.clients.get(ticket.tenant, ()))
            if now + self._speed.time_for(ahead) + ticket.least_service_ns > ticket.deadline:
                return _UNREACHABLE
        return None

    def _too_late(self, ticket: Ticket, now: int) -> Refusal | None:
        if ticket.deadline is not None and now + ticket.least_service_ns > ticket.deadline:
            return _UNREACHABLE
        if now - ticket.enqueued_at > self.settings.max_wait_ns:
            return Refusal(code="queue_timeout", message="The request has waited too long for this model.")
        return None

    def _drop(
        self, tier: "_TierQueue", ticket: Ticket, refusal: Refusal, dropped: list[tuple[Ticket, Refusal]]
    ) -> None:
        self._remove(tier, ticket)
        ticket.state = TicketState.DROPPED
        dropped.append((ticket, refusal))

    # Who loses its place.

    def _victims(self, tier: "_TierQueue", ticket: Ticket) -> tuple[Ticket, ...]:
        slots, tokens = self._slots, self._tokens
        victims: list[Ticket] = []
        for lower in reversed(self._order):
            if lower is tier:
                break
            for victim in reversed(lower.silent):
                if slots < self.capacity.slots and tokens + ticket.tokens <= self.capacity.tokens:
                    return tuple(victims)
                if victim.preemptions < MAX_PREEMPTIONS:
                    victims.append(victim)
                    slots -= 1
                    tokens -= victim.tokens
        enough = slots < self.capacity.slots and tokens + ticket.tokens <= self.capacity.tokens
        return tuple(victims) if enough else ()

    def _send_back(self, ticket: Ticket, now: int) -> None:
        tier = self._tiers[ticket.tier]
        tier.counters.charge(ticket.tenant, -ticket.uncached_tokens, -ticket.charged_output)
        ticket.charged_output = 0
        ticket.preemptions += 1
        self._free(tier, ticket)
        self._wait(tier, ticket, now)
        tier.clients[ticket.tenant].move_to_end(ticket, last=False)

    # What is held, and who waits.

    def _start(self, tier: "_TierQueue", ticket: Ticket, now: int) -> None:
        ticket.state = TicketState.RUNNING
        ticket.started_at = now
        ticket.charged_output = ticket.output_tokens
        tier.counters.charge(ticket.tenant, ticket.uncached_tokens, ticket.output_tokens)
        tier.silent[ticket] = None
        tier.held_tokens += ticket.tokens
        self._slots += 1
        self._tokens += ticket.tokens
        held = self._held.get(ticket.tenant)
        if held is None:
            held = self._held[ticket.tenant] = _Holding()
        held.slots += 1
        held.tokens += ticket.tokens

    def _free(self, tier: "_TierQueue", ticket: Ticket) -> None:
        tier.silent.pop(ticket, None)
        tier.held_tokens -= ticket.tokens
        self._slots -= 1
        self._tokens -= ticket.tokens
        held = self._held[ticket.tenant]
        held.slots -= 1
        held.tokens -= ticket.tokens
        if held.slots == 0:
            del self._held[ticket.tenant]

    def _wait(self, tier: "_TierQueue", ticket: Ticket, now: int) -> None:
        ticket.state = TicketState.WAITING
        tier.waits_since = min(tier.waits_since, now)
        tier.counters.join(ticket.tenant, ticket.weight)
        tier.clients.setdefault(ticket.tenant, OrderedDict())[ticket] = None
        self.waiting += 1
        self.waiting_tokens += ticket.tokens
        self._waiting_tenants[ticket.tenant] = self._waiting_tenants.get(ticket.tenant, 0) + 1

    def _remove(self, tier: "_TierQueue", ticket: Ticket) -> None:
        tier.counters.leave(ticket.tenant)
        client = tier.clients[ticket.tenant]
        del client[ticket]
        if not client:
            del tier.clients[ticket.tenant]
            if not tier.clients:
                tier.waits_since = _NEVER
        self.waiting -= 1
        self.waiting_tokens -= ticket.tokens
        left = self._waiting_tenants[ticket.tenant] - 1
        if left:
            self._waiting_tenants[ticket.tenant] = left
        else:
            del self._waiting_tenants[ticket.tenant]


_NEVER = 1 << 62
_UNREACHABLE = Refusal(code="deadline_unreachable", message="The request's deadline cannot be met.")


class _Holding:
    """What a tenant has under way."""

    __slots__ = ("slots", "tokens")

    def __init__(self) -> None:
        self.slots = 0
        self.tokens = 0


class _TierQueue:
    """One tier: who waits in it, what it holds, and of whose requests nobody has seen a byte (oldest first).

    `waits_since`: when its waiting requests were last served, or began to wait.
    """

    __slots__ = ("clients", "counters", "held_tokens", "silent", "spec", "waits_since")

    def __init__(self, spec: TierSpec, quantum: float) -> None:
        self.spec = spec
        self.counters = FairCounters(quantum=quantum)
        self.clients: dict[str, OrderedDict[Ticket, None]] = {}
        self.silent: dict[Ticket, None] = {}
        self.held_tokens = 0
        self.waits_since = _NEVER

    def uncached_ratio(self, tenant: str) -> float:
        """The part of a tenant's next request that has to be computed."""
        ticket = next(iter(self.clients[tenant]))
        return ticket.uncached_tokens / ticket.input_tokens if ticket.input_tokens else 1.0


class _Speed:
    """Tokens a second that leave the deployment while it is busy, as a mean over about ten seconds."""

    __slots__ = ("_per_ns", "_since", "_tokens")

    def __init__(self) -> None:
        self._per_ns = 0.0
        self._since = 0
        self._tokens = 0

    def note(self, tokens: int, now: int) -> None:
        """A request left while others waited."""
        self._tokens += tokens
        passed = now - self._since
        if self._since and passed >= _LEAST_SAMPLE:
            share = 1.0 - math.exp(-passed / _RATE_WINDOW) if self._per_ns else 1.0
            self._per_ns += share * (self._tokens / passed - self._per_ns)
        elif self._since:
            return
        self._tokens = 0
        self._since = now

    def pause(self, now: int) -> None:
        """Nobody waits: what leaves now says nothing of what could."""
        self._since = 0
        self._tokens = 0

    def time_for(self, tokens: int) -> int:
        """How long so many tokens take at least; 0 while nothing is known."""
        return int(tokens / self._per_ns) if self._per_ns else 0
