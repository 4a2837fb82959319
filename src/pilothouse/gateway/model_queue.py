"""The fair queue before a model's replicas, with the exchanges that wait in it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import Capacity
from pilothouse.policy.fairness.queue import FairQueue, QueueSettings
from pilothouse.policy.fairness.ticket import Ticket, TicketState

if TYPE_CHECKING:
    from pilothouse.gateway.meters import QueueMeters

DEADLINE_HEADER = b"x-pilothouse-deadline-ms"
"""A client's word that an answer is of no use to it that has not begun so many milliseconds after its request."""

_MILLISECOND = 1_000_000
_MAX_DIGITS = 9


class Queued(Protocol):
    """Who waits for a place: an exchange."""

    @property
    def generated(self) -> int:
        """Pieces of its answer that have been generated so far."""

    def go(self) -> None:
        """There is a place now."""

    def send_back(self) -> None:
        """The place is needed for somebody else; wait again."""

    def fail(self, refusal: Refusal) -> None:
        """There will be none."""


class ModelQueue:
    """One model's, in one worker. `call_soon` runs a callback when the present one has returned."""

    def __init__(
        self,
        settings: QueueSettings,
        capacity: Capacity,
        meters: "QueueMeters",
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], int],
    ) -> None:
        self._fair = FairQueue(settings, capacity)
        self._exchanges: dict[Ticket, Queued] = {}  # of tickets that wait or run
        self._meters = meters
        self._call_soon = call_soon
        self._clock = clock
        self._is_pumping = False

    @property
    def idle(self) -> bool:
        """Whether there is room and nobody waits for it."""
        return self._fair.idle

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return self._fair.waiting

    def set_capacity(self, capacity: Capacity) -> None:
        """Replicas have come or gone."""
        if capacity != self._fair.capacity:
            self._fair.capacity = capacity
            self._pump_soon()

    def enter(self, exchange: "Queued", ticket: Ticket, now: int) -> Refusal | None:
        """A request asks for a place. It may go at once if its ticket is running, else `exchange.go` is called."""
        refusal = self._fair.submit(ticket, now)
        if refusal is None:
            self._exchanges[ticket] = exchange
            if ticket.state is TicketState.WAITING:
                self._meters.waiting.add(1)
        return refusal

    def first_byte(self, ticket: Ticket) -> None:
        """The client sees an answer: the place is not taken from it any more."""
        self._fair.first_byte(ticket)

    def leave(self, ticket: Ticket, output_tokens: int, uncached_tokens: int | None) -> None:
        """A request has ended, wherever it was."""
        if self._exchanges.pop(ticket, None) is None:
            return
        if ticket.state is TicketState.WAITING:
            self._fair.cancel(ticket)
            self._meters.waiting.add(-1)
        else:
            self._fair.finish(ticket, self._clock(), output_tokens, uncached_tokens)
        if self._fair.waiting:
            self._pump_soon()

    def tick(self) -> None:
        """What has to be done now and then: charge what is generated, drop what waits for too long, make room."""
        for ticket, exchange in self._exchanges.items():
            if ticket.state is TicketState.RUNNING:
                self._fair.progress(ticket, exchange.generated)
        if not self._fair.waiting:
            return
        now = self._clock()
        for ticket, refusal in self._fair.expire(now).dropped:
            self._drop(ticket, refusal)
        for ticket in self._fair.preempt(now):
            self._meters.waiting.add(1)
            self._meters.preemptions.add()
            self._exchanges[ticket].send_back()
        self._pump()

    def export(self) -> dict[str, dict[str, float]]:
        """The tenants' counters, for the worker that comes next."""
        return self._fair.export()

    def restore(self, counters: dict[str, dict[str, float]]) -> None:
        """Go on from another worker's counters."""
        self._fair.restore(counters)

    def _pump_soon(self) -> None:
        # An exchange that ends must not start others in the middle of its own end.
        if not self._is_pumping:
            self._is_pumping = True
            self._call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        now = self._clock()
        dispatch = self._fair.take(now)
        for ticket, refusal in dispatch.dropped:
            self._drop(ticket, refusal)
        for ticket in dispatch.started:
            self._meters.waiting.add(-1)
            self._meters.wait.observe((now - ticket.enqueued_at) / 1e9)
            self._exchanges[ticket].go()

    def _drop(self, ticket: Ticket, refusal: Refusal) -> None:
        self._meters.waiting.add(-1)
        exchange = self._exchanges.pop(ticket)
        exchange.fail(refusal)


def deadline_of(headers: list[tuple[bytes, bytes]], read_at: int) -> int | None:
    """Until when the first byte has to be sent, by the client's own word; `None` without one that makes sense."""
    for name, value in headers:
        if name == DEADLINE_HEADER and value.isdigit() and len(value) <= _MAX_DIGITS:
            return read_at + int(value) * _MILLISECOND
    return None
