"""A gateway's queue before the fake engine's scheduler, in virtual time: no process, no clock."""

import math
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from benchmarks.client_trace import Served, TraceRequest
from pilothouse.model.fleet import Capacity
from pilothouse.model.tenants import Tier
from pilothouse.policy.fairness.queue import FairQueue
from pilothouse.policy.fairness.ticket import Ticket, TicketState
from pilothouse.policy.limits.decision import LimitRefusal
from pilothouse.policy.limits.plan import LimitPlan
from pilothouse.policy.limits.reservation import Demand, Reservation
from pilothouse.testing.fake_engine import scheduler as engine


class EngineRates(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the engine is and what it holds; the names are the fake engine's options."""

    step_base_ms: float
    step_per_sequence_ms: float
    prefill_tokens_per_s: float
    kv_blocks: int
    block_size: int
    prefix_caching: bool = False


A10G = EngineRates(
    step_base_ms=33.97, step_per_sequence_ms=0.153, prefill_tokens_per_s=4662.0, kv_blocks=10_000, block_size=1
)
"""Llama-2-7b on an A10G: least squares over the 15 points of the artifact's cost_profile.json with 64 or more output
tokens (decode, off by at most 16 %), and 214.5 us for a prompt token."""


class Queue(Protocol):
    """What decides who is sent to the engine."""

    def submit(self, ticket: Ticket, now: int) -> object:
        """A new request."""

    def take(self, now: int) -> Sequence[Ticket]:
        """Who is sent now."""

    def progress(self, ticket: Ticket, output_tokens: int) -> None:
        """A request has so many tokens."""

    def finish(self, ticket: Ticket, now: int, output_tokens: int) -> None:
        """A request has ended."""


class FairOrder:
    """The product's queue."""

    def __init__(self, queue: FairQueue) -> None:
        self.submit = queue.submit
        self.progress = queue.progress
        self.finish = queue.finish
        self._queue = queue

    def take(self, now: int) -> Sequence[Ticket]:
        return self._queue.take(now).started


class ArrivalOrder:
    """First come, first served, with the same capacity."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._waiting: deque[Ticket] = deque()
        self._tokens = self._slots = 0

    def submit(self, ticket: Ticket, now: int) -> None:
        ticket.state = TicketState.WAITING
        self._waiting.append(ticket)

    def take(self, now: int) -> Sequence[Ticket]:
        started = []
        while self._waiting and self._tokens + self._waiting[0].tokens <= self._capacity.tokens:
            ticket = self._waiting.popleft()
            ticket.state = TicketState.RUNNING
            self._tokens += ticket.tokens
            started.append(ticket)
        return started

    def progress(self, ticket: Ticket, output_tokens: int) -> None:
        pass

    def finish(self, ticket: Ticket, now: int, output_tokens: int) -> None:
        self._tokens -= ticket.tokens


def replay(
    requests: Sequence[TraceRequest],
    queue: Queue,
    rates: EngineRates,
    *,
    expected_output: Callable[[TraceRequest], int],
    observe: Callable[[TraceRequest], None] = lambda request: None,
    until_s: float = math.inf,
    plan_of: Callable[[TraceRequest], LimitPlan | None] = lambda request: None,
) -> list[Served]:
    """Requests through limits, queue and engine, and what became of those that were done by `until_s`.

    `plan_of` has the limits of a request; what they refuse is gone.
    """
    scheduler = engine.Scheduler(
        engine.SchedulerLimits(blocks=rates.kv_blocks, block_size=rates.block_size, prefix_caching=rates.prefix_caching)
    )
    arrivals = deque(requests)
    under_way: dict[engine.Sequence, tuple[Ticket, TraceRequest]] = {}
    known: dict[Ticket, TraceRequest] = {}
    first_token: dict[engine.Sequence, float] = {}
    served: list[Served] = []
    reservations: dict[TraceRequest, Reservation] = {}
    now_s = 0.0

    def send(tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            request = known.pop(ticket)
            sequence = engine.Sequence(array("I", [0] * request.input_tokens), array("I", [0] * request.output_tokens))
            under_way[sequence] = (ticket, request)
            scheduler.add(sequence)

    while (arrivals or under_way or known) and now_s < until_s:
        while arrivals and arrivals[0].at_s <= now_s:
            request = arrivals.popleft()
            plan = plan_of(request)
            if plan is not None:
                demand = Demand(input_tokens=request.input_tokens, output_tokens=expected_output(request))
                reservation = plan.reserve(demand, _ns(now_s), 0)
                if isinstance(reservation, LimitRefusal):
                    continue
                reservations[request] = reservation
            ticket = Ticket(request.client, Tier.STANDARD, request.input_tokens, expected_output(request))
            known[ticket] = request
            queue.submit(ticket, _ns(now_s))
            if ticket.state is TicketState.RUNNING:
                send([ticket])
        send(queue.take(_ns(now_s)))
        step = scheduler.begin_step()
        if step is None:
            now_s = arrivals[0].at_s
            continue
        now_s += (
            rates.step_base_ms + rates.step_per_sequence_ms * len(step.scheduled)
        ) / 1e3 + step.prefill_tokens / rates.prefill_tokens_per_s
        for sequence in scheduler.finish_step(step):
            first_token.setdefault(sequence, now_s)
            ticket, request = under_way[sequence]
            queue.progress(ticket, sequence.generated)
            if sequence.finished:
                del under_way[sequence]
                queue.finish(ticket, _ns(now_s), request.output_tokens)
                observe(request)
                if request in reservations:
                    reservations.pop(request).settle(_ns(now_s), request.input_tokens, request.output_tokens)
                served.append(Served(request=request, first_token_s=first_token[sequence], finished_s=now_s))
    return served


def _ns(at_s: float) -> int:
    return round(at_s * 1e9)
