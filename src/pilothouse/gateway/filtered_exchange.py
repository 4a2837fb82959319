"""An exchange whose request or answer goes through filters.

The request is filtered before it counts against a limit. A stream is filtered between the relay and the client, event
by event; an answer that is not streamed is gathered whole first. What the engine says in place of an answer is filtered
too: it may repeat the prompt.
"""

import time
from typing import TYPE_CHECKING

from pilothouse.gateway.exchange import Exchange
from pilothouse.gateway.exchange_record import Phase
from pilothouse.gateway.filter_sets import TurnFilters
from pilothouse.gateway.routing_table import Candidate, ModelEntry
from pilothouse.model.errors import Refusal
from pilothouse.model.ledger import Outcome
from pilothouse.model.requests import Route, Usage
from pilothouse.model.units import DurationNs
from pilothouse.policy.redaction.compiled import CompiledFilter
from pilothouse.policy.redaction.turn import Turn as FilterTurn
from pilothouse.wire import inference_body, sse
from pilothouse.wire.event_relay import EventRelay
from pilothouse.wire.filtered_body import filter_answer, filter_request
from pilothouse.wire.filtered_stream import FilteredStream
from pilothouse.wire.http1 import LAST_CHUNK, Request
from pilothouse.wire.inference_body import InferenceBody

if TYPE_CHECKING:
    from pilothouse.gateway.client_connection import ClientConnection
    from pilothouse.gateway.upstream import UpstreamConnection

MAX_FILTERED_BYTES = 8 * 1024 * 1024
"""8 MiB of an answer that is not streamed are gathered and searched; a longer one is refused. About a sixth of a second
of CPU at the 50 MB/s that filters search with."""

_NONE = DurationNs(0)


class FilteredRelay(EventRelay):
    """A relay whose events go through a filter."""

    __slots__ = ("_stream",)

    def __init__(self, route: Route, stream: FilteredStream, *, hides_usage: bool, hides_progress: bool) -> None:
        super().__init__(route, hides_usage=hides_usage, hides_progress=hides_progress)
        self._stream = stream

    def feed(self, data: bytes) -> bytes:
        """The events that may go to the client now."""
        events = EventRelay.feed(self, data)
        stream = self._stream
        if self._cutter.oversize:
            sent = stream.fail(ValueError("an event is too large"))
            if stream.ended is None:
                sent += events  # by declaration
        elif events:
            sent = stream.feed(events)
        else:
            return b""
        if stream.ended is not None:
            self.ended = True
        return sent

    def close(self) -> bytes:
        """The engine's stream is at its end."""
        stream = self._stream
        rest = super().close()
        return (stream.feed(rest) if rest else b"") + stream.close()


class FilteredExchange(Exchange):
    """See the module. `_input` and `_output` are the filters, `None` where nothing is looked for."""

    __slots__ = (
        "_collected_bytes",
        "_filter_turn",
        "_idle_left",
        "_input",
        "_output",
        "_stall",
        "_stream",
        "_unusable",
    )

    def __init__(
        self,
        client: "ClientConnection",
        request: Request,
        body: InferenceBody,
        route: Route,
        candidates: tuple[Candidate, ...],
        entry: ModelEntry,
        weight: int,
        filters: TurnFilters,
    ) -> None:
        super().__init__(client, request, body, route, candidates, entry, weight)
        self._unusable = filters.refusal
        self._input = filters.input
        # Embeddings are numbers.
        self._output = filters.output if route is not Route.EMBEDDINGS else None
        either = filters.output or filters.input
        self._filter_turn = either.turn() if either is not None else FilterTurn()
        self._stream: FilteredStream | None = None
        self._collected_bytes = 0
        self._stall = _NONE  # how long what a stream holds back may wait for the engine
        self._idle_left = 0  # nanoseconds of the wait for the engine that come after that

    # Towards the engine.

    def start(self) -> None:
        """Filter the request, then go on with it as usual."""
        refusal = self._unusable or (None if self._input is None else self._filter_request(self._input))
        if refusal is not None:
            self._fail(refusal)
        else:
            super().start()

    def _filter_request(self, compiled: CompiledFilter) -> Refusal | None:
        filtered = filter_request(self._body.data, compiled, self._filter_turn)
        self._tell_matches("input")
        if isinstance(filtered, Refusal):
            return filtered
        if filtered is not self._body.data:
            body = inference_body.read(filtered, self._route)
            if isinstance(body, Refusal):
                return body
            self._body = body
        return None

    # From the engine.

    def _begin(self, connection: "UpstreamConnection") -> None:
        super()._begin(connection)
        if self._relay is not None and self._output is not None:
            self._stall = self._output.stall_ns
            self._stream = FilteredStream(self._output, self._filter_turn, request_id=self.id)
            self._relay = FilteredRelay(
                self._route, self._stream, hides_usage=self._added.usage, hides_progress=self._added.progress
            )

    def _relay_events(self, relay: EventRelay, data: bytes, *, last: bool) -> None:
        Exchange._relay_events(self, relay, data, last=last)
        stream = self._stream
        if stream is not None and stream.ended is not None:
            self._stop(stream.ended)

    def _stop(self, refusal: Refusal) -> None:
        """The filter has ended the stream and its last events are written: nothing more comes, of the engine either."""
        if self._phase is not Phase.STREAMING:
            return
        self._drop_upstream()
        if self._request.minor == 1:
            self._client.transport.write(LAST_CHUNK)
        usage = self._relay.usage if self._relay is not None else None
        self._end(refusal.spec.status or 500, refusal.code, usage, keep_alive=self._keeps_alive())

    def _answer(self, body: bytes, usage: Usage | None, lines: bytes) -> None:
        if self._output is not None:
            filtered = filter_answer(body, self._output, self._filter_turn, as_text=self._status >= 400)
            if isinstance(filtered, Refusal):
                if self._turn is not None and self._status < 400:
                    self._settle(self._turn, Outcome.COMPLETED, usage, 0)
                self._fail(filtered)
                return
            body = filtered
        super()._answer(body, usage, lines)

    def _receive_piece(self, data: bytes) -> None:
        """Gather: nothing of an answer goes on before all of it has been searched."""
        if self._output is None:
            super()._receive_piece(data)
            return
        collected = self._collected = self._collected or []
        collected.append(data)
        self._collected_bytes += len(data)
        if self._collected_bytes > MAX_FILTERED_BYTES:
            message = f"The answer is longer than the {MAX_FILTERED_BYTES} bytes that the content filter searches."
            self._fail(Refusal(code="filter_failed", message=message))

    def _fail_as_told(self, event: bytes) -> None:
        if self._output is not None:
            filtered = filter_answer(sse.data_of(event), self._output, self._filter_turn, as_text=True)
            if isinstance(filtered, Refusal):
                self._fail(filtered)
                return
            event = sse.event(filtered)
        super()._fail_as_told(event)

    # Time.

    def _arm(self, delay: DurationNs) -> None:
        # The wait for what is held ends first, whether something is: it is cheaper to look then than now.
        stall = self._stall
        if stall and stall < delay:
            self._idle_left = delay - stall
            delay = stall
        else:
            self._idle_left = 0
        Exchange._arm(self, delay)

    def timed_out(self) -> None:
        """The engine has been silent: for long enough that what is held is decided, or for too long."""
        left, total = self._idle_left, self._delays.total
        over = total and time.monotonic_ns() - self._read_at >= total
        if not left or over or self._stream is None:
            super().timed_out()
            return
        if self._client.writable and self._stream.waiting:
            self._send_decided(self._stream)
        if self._phase is not Phase.ENDED:
            self._idle_left = 0
            Exchange._arm(self, DurationNs(left))

    def _send_decided(self, stream: FilteredStream) -> None:
        events = stream.stalled()
        if stream.ended is not None and self._turn is not None and self._relay is not None:
            self._settle(self._turn, Outcome.COMPLETED, self._relay.usage, self._relay.pieces)
        if events and self._phase is Phase.STREAMING:
            self._client.transport.write(self._framed(events))
        if stream.ended is not None:
            self._stop(stream.ended)

    # The end.

    def _release(self) -> None:
        self._end_filters()
        super()._release()

    def _end(self, status: int, reason: str, usage: Usage | None, *, keep_alive: bool) -> None:
        self._end_filters()
        super()._end(status, reason, usage, keep_alive=keep_alive)

    def _end_filters(self) -> None:
        self._tell_matches("output")
        if self._stream is not None:
            self._stream.discard()

    def _tell_matches(self, direction: str) -> None:
        """Count what was found since last told."""
        counts = self._filter_turn.counts
        for (entity, action), count in counts.items():
            self._meters.filter_matched(entity, action, direction, count)
        counts.clear()
