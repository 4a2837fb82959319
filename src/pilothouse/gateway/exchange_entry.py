"""The way of a request to a place at its model: what its tenant's limits say, and the queue before the model."""

import abc
import time
from typing import TYPE_CHECKING

from pilothouse.gateway import answers
from pilothouse.gateway.candidates import candidates_for
from pilothouse.gateway.exchange_record import ExchangeRecord, Phase
from pilothouse.gateway.model_queue import deadline_of
from pilothouse.gateway.routing_table import Candidate, ModelEntry
from pilothouse.model.errors import Refusal
from pilothouse.model.requests import Route, Usage
from pilothouse.model.units import SECOND, DurationNs
from pilothouse.policy.fairness.ticket import Ticket, TicketState
from pilothouse.policy.limits.decision import LimitRefusal
from pilothouse.wire.http1 import Request
from pilothouse.wire.inference_body import InferenceBody

if TYPE_CHECKING:
    from collections.abc import Callable

    from pilothouse.gateway.callers import Caller
    from pilothouse.gateway.client_connection import ClientConnection
    from pilothouse.gateway.turns import Turn

_ADMITTING = DurationNs(5 * SECOND)  # far above the time-out of whoever is asked
_QUEUED = DurationNs(3600 * SECOND)  # the queue has its own bound; this is for one that would not keep it


class ExchangeEntry(ExchangeRecord, abc.ABC):
    """The first half of `Exchange`: from its start until it may go to an engine."""

    __slots__ = ("_delays", "_queue", "_ticket", "_weight")

    def __init__(
        self,
        client: "ClientConnection",
        request: Request,
        body: InferenceBody,
        route: Route,
        candidates: tuple[Candidate, ...],
        entry: ModelEntry,
        weight: int,
    ) -> None:
        super().__init__(client, request, body, route, candidates, entry.meters)
        self._weight = weight  # tokens that the request counts for while it is in flight
        self._delays = entry.delays[route]
        self._queue = entry.queue
        self._ticket: Ticket | None = None  # of a place in the queue, or of one at the model

    # What the second half does.

    @property
    @abc.abstractmethod
    def generated(self) -> int:
        """Pieces of the answer that have been generated so far, as far as they are seen here."""

    @abc.abstractmethod
    def send_back(self) -> None:
        """The place is needed for a more urgent request, and nobody has seen a byte of this one's answer."""

    @abc.abstractmethod
    def fail(self, refusal: Refusal) -> None:
        """End with an error, from outside."""

    @abc.abstractmethod
    def on_defect(self, error: Exception) -> None:
        """An exception that must not have happened ends this exchange, and nothing else."""

    @abc.abstractmethod
    def _attempt(self) -> None:
        """Send the request to a replica."""

    @abc.abstractmethod
    def _fail(self, refusal: Refusal) -> None:
        """Tell the client in the way that is still open."""

    @abc.abstractmethod
    def _release(self) -> None:
        """Give back what is in flight, once."""

    def _admit(self, turn: "Turn", *, asked: bool = False) -> None:
        plane = self._client.plane
        now = time.monotonic_ns() if asked else self._read_at
        verdict = turn.reserve(now, asked=asked, idle=self._queue is not None and self._queue.idle)
        if verdict is None:
            self._enter(turn.caller)
        elif isinstance(verdict, LimitRefusal):
            self._end_span(429, verdict.code, None)
            self._release()
            answers.refuse(
                self._client,
                self._request,
                verdict.refusal,
                model=self._body.model,
                route=self._route,
                own_id=self.id,
                extra=turn.limit_headers(now),
                retry_after_s=verdict.retry_after_s,
            )
        else:
            assert plane.turns is not None
            self._phase = Phase.ADMITTING
            self._arm(_ADMITTING)
            plane.turns.ask(lambda: self._guarded(lambda: self._admit(turn, asked=True)))

    def _enter(self, caller: "Caller") -> None:
        """Take a place at the model, or wait for one."""
        queue = self._queue
        if queue is None:
            self._attempt()
            return
        tenant = caller.tenant
        inputs, output = self._turn.expected if self._turn is not None else (self._weight, 0)
        ticket = self._ticket = Ticket(
            tenant.id,
            tenant.tier,
            inputs,
            output,
            weight=tenant.weight,
            kv_share=tenant.kv_share,
            deadline=deadline_of(self._request.headers, self._read_at),
        )
        refusal = queue.enter(self, ticket, time.monotonic_ns())
        if refusal is not None:
            self._ticket = None
            self._fail(refusal)
        elif ticket.state is TicketState.RUNNING:
            self._attempt()
        else:
            self._wait_for_place()

    def _wait_for_place(self) -> None:
        self._phase = Phase.QUEUED
        # The queue has its own bound; this one is for a queue that would not keep it.
        self._arm(_QUEUED)

    def go(self) -> None:
        """There is a place at the model now. Its replicas may be others than when the request came."""
        entry = self._client.plane.table.models.get(self._body.model)
        if entry is None:
            self.fail(Refusal(code="no_ready_replica", message="The model is not served any more."))
            return
        found = candidates_for(entry, self._body, self._route)
        if isinstance(found, Refusal):
            self.fail(found)
        else:
            self._candidates = found
            self._guarded(self._attempt)

    def _leave(self, ticket: "Ticket", usage: Usage | None) -> None:
        """Give the place at the model, or in the queue, to others."""
        self._ticket = None
        assert self._queue is not None
        if usage is None:
            self._queue.leave(ticket, self.generated, None)
        else:
            self._queue.leave(ticket, usage.output_tokens, max(0, usage.input_tokens - usage.cached_tokens))

    def _arm(self, delay: DurationNs) -> None:
        """Wait no longer than `delay` for the next step, nor past the end of the whole."""
        wheel, total = self._client.plane.wheel, self._delays.total
        if total:
            delay = DurationNs(max(0, min(delay, self._read_at + total - wheel.now)))
        wheel.arm(self._client, delay)

    def _guarded(self, step: "Callable[[], None]") -> None:
        """Run a step that the event loop or an upstream began."""
        if self._phase is Phase.ENDED:
            return
        try:
            step()
        except Exception as error:
            self.on_defect(error)
