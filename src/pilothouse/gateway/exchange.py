"""One inference request on its way to an engine and back: one owner, one end.

    (admitting > queued >) connecting > waiting > (collecting | assembling | holding > streaming | passing) > ended

- *admitting*: the keeper of shared limits is asked whether the tenant may have one request more.
- *queued*: the model's capacity is used up; others are served first. A request may come back here once, before a byte
  of its answer was sent.
- *connecting*: a replica is chosen, a connection to it is being made.
- *waiting*: the request is sent, the response's head is not here yet.
- *collecting*: an answer that is not a stream is gathered, so that its failure can still be a real HTTP status.
- *assembling*: the same, from the stream that the engine was asked for in its place.
- *holding*: a stream has begun but brought no content yet: its failure can still be a real HTTP status too.
- *streaming*: content has gone to the client. From here on a failure is an error event.
- *passing*: a body too large to gather goes through as it comes.

Whatever the end is, `_end` runs once: it gives back the in-flight tokens, ends the upstream connection one way or the
other, and counts the request. The turn is settled before the last bytes of the answer leave.
"""

import time
from typing import TYPE_CHECKING

import msgspec

from pilothouse.gateway import answers
from pilothouse.gateway.exchange_entry import ExchangeEntry
from pilothouse.gateway.exchange_record import Phase
from pilothouse.gateway.heads import client_head, trace_lines
from pilothouse.gateway.routing_table import Candidate, ModelEntry
from pilothouse.gateway.tracing import engine_trace
from pilothouse.gateway.turns import Turn
from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import DeploymentView
from pilothouse.model.ids import ReplicaId
from pilothouse.model.ledger import Outcome
from pilothouse.model.requests import Route, Usage
from pilothouse.model.units import DurationNs, seconds
from pilothouse.policy.retry import Failure, classify_loss
from pilothouse.telemetry import genai_names
from pilothouse.telemetry.catalogue import DisconnectPhase, Reason
from pilothouse.wire import anthropic, inference_body, openai
from pilothouse.wire.assembly import Assembly
from pilothouse.wire.event_relay import EventRelay
from pilothouse.wire.http1 import LAST_CHUNK, Request, chunk
from pilothouse.wire.inference_body import InferenceBody

if TYPE_CHECKING:
    from pilothouse.gateway.client_connection import ClientConnection
    from pilothouse.gateway.upstream import PendingConnection, UpstreamConnection

MAX_COLLECTED_BYTES = 1024 * 1024
"""Up to 1 MiB of an answer is gathered before its head is sent; engines write a whole answer at once."""

_COPIED_BYTES = 65536
_SECOND = 1e9
_JSON_LINES = b"content-type: application/json\r\n"


# For the usual path: a module's name is looked up at once, an enumeration's member through its class (40 ns each).
_CONNECTING, _WAITING, _ENDED = Phase.CONNECTING, Phase.WAITING, Phase.ENDED
_COMPLETED = Outcome.COMPLETED
_OK, _ENGINE_ERROR = Reason.OK, Reason.ENGINE_ERROR


class Exchange(ExchangeEntry):
    """One request for an engine. Made with the whole request, it ends by calling `client.ended` or with the client."""

    __slots__ = (
        "_added",
        "_assembly",
        "_collected",
        "_connection",
        "_failed",
        "_pending",
        "_relay",
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
    ) -> None:
        super().__init__(client, request, body, route, candidates, entry, weight)
        self._failed: tuple[ReplicaId, ...] = ()
        self._added = inference_body.NOTHING
        self._connection: UpstreamConnection | None = None
        self._pending: PendingConnection | None = None
        self._collected: list[bytes] | None = None
        self._relay: EventRelay | None = None  # of a stream on its way to the client
        self._assembly: Assembly | None = None  # of a stream that the client did not ask for

    # Towards the engine.

    def start(self) -> None:
        """See that the tenant's limits allow the request, choose a replica, and send it."""
        plane = self._client.plane
        plane.retry_budget.requests += 1
        traces = plane.traces
        if traces is not None and traces.samples(self._request.trace, self.id):
            self._begin_span(traces)
        caller, turns, read_at = self._client.caller, plane.turns, self._read_at
        assert caller is not None, "no request gets here without a key"
        if turns is None:
            self._enter(caller)
            return
        turn = self._turn = Turn(turns, caller, self._body, read_at, read_at + plane.wall_offset)
        if turn.plan is None and self._queue is None:
            self._attempt()  # nothing limits it and nobody waits: the two steps between would say the same
        else:
            self._admit(turn)

    def send_back(self) -> None:
        """The place is needed for a more urgent request, and nobody has seen a byte of this one's answer."""
        self._drop_upstream()
        if self._replica is not None:
            self._replica.release(self._weight)
            self._replica = None
        self._status = 0
        self._relay = self._assembly = self._collected = None
        self._wait_for_place()

    @property
    def generated(self) -> int:
        """Pieces of the answer that have been generated so far, as far as they are seen here."""
        if self._relay is not None:
            return self._relay.pieces
        return self._assembly.pieces if self._assembly is not None else 0

    def _attempt(self) -> None:
        index = self._client.plane.choose(self._candidates, self.id, self._failed)
        if index is None:
            self._fail(_unreachable(self._body.model))
            return
        candidate = self._candidate = self._candidates[index]
        replica = self._replica = candidate.replica
        self._attempts += 1
        replica.load_tokens += self._weight
        replica.in_flight_requests += 1
        connection = replica.take()
        if connection is not None:
            self._send(connection, candidate)
        else:
            self._phase = _CONNECTING
            self._pending = replica.connect(self, self._delays.connect_s)
            # What is armed is the client's own time-out, for being idle or for its body. Connecting has one of its own.
            self._arm(DurationNs(2 * seconds(self._delays.connect_s)))

    def on_connected(self, connection: "UpstreamConnection") -> None:
        """The connection that was asked for is there."""
        self._pending = None
        candidate = self._candidate
        assert candidate is not None
        self._guarded(lambda: self._send(connection, candidate))

    def _send(self, connection: "UpstreamConnection", candidate: Candidate) -> None:
        body, deployment = self._body, candidate.deployment
        if body.stream or deployment.progress_field is not None:
            self._added = inference_body.additions(body, self._route, deployment)
        try:
            ours = self._engine_fields(deployment) if candidate.tells_tenant else b""
            data = inference_body.for_engine(body, deployment, self._added, ours)
        except msgspec.DecodeError as error:
            connection.abort()
            self._fail(inference_body.unreadable(error))
            return
        client, trace = self._client, self._request.trace
        if self._span is not None:
            trace = engine_trace(self._span, trace)
        head = b"%b%b%bcontent-length: %d\r\nx-request-id: %b\r\n\r\n" % (
            candidate.replica.heads[self._route],
            client.forwarded_lines(candidate.reserved_headers),
            trace_lines(trace) if trace else b"",
            len(data),
            self.id.encode(),
        )
        self._connection = connection
        self._phase = _WAITING
        connection.owner = self
        delays = self._delays
        if delays.total:
            self._arm(delays.first_byte)
        else:
            client.plane.wheel.arm(client, delays.first_byte)
        # One write for the usual small body; a copy of a large one would cost more than a second write.
        if len(data) < _COPIED_BYTES:
            connection.transport.write(head + data)
        else:
            connection.transport.writelines((head, data))
        self._sent_at = time.monotonic_ns()

    def _engine_fields(self, deployment: DeploymentView) -> bytes:
        caller = self._client.caller
        assert caller is not None, "no request gets here without a key"
        return caller.engine_fields(deployment)

    def on_connect_failed(self, reason: str) -> None:
        """The connection could not be had: another replica may do."""
        self._pending = None
        self._guarded(lambda: self._attempt_failed(Failure.CONNECT_FAILED, reason))

    def _attempt_failed(self, failure: Failure, reason: str) -> None:
        """Nothing of an answer has come. Try elsewhere if policy allows, else tell the client."""
        replica, plane = self._replica, self._client.plane
        assert replica is not None
        replica.release(self._weight)
        self._replica = None
        self._connection = None
        if failure is not Failure.STALE_CONNECTION:
            plane.suspect(replica, reason)
            self._failed = (*self._failed, replica.id)
        if plane.retry_budget.may_retry(failure, self._attempts):
            self._meters.retries[failure].add()
            self._attempt()
        elif failure is Failure.CONNECT_FAILED:
            self._fail(_unreachable(self._body.model))
        else:
            self._fail(_lost(self._body.model))

    # From the engine.

    def on_answer(self, body: bytes) -> None:
        """The response is here in one read, with the head of the one before it on this connection."""
        connection = self._connection
        assert connection is not None
        if self._body.stream or self._added.stream:
            connection.parser.body.append(body)
            self.on_upstream_data()
        else:
            self._status = connection.parser.status
            self._answer(body, openai.usage_of_answer(body), connection.head().lines)

    def on_upstream_data(self) -> None:
        """The response parser was fed."""
        connection = self._connection
        assert connection is not None
        parser = connection.parser
        if self._status == 0:
            self._status = parser.status
            if parser.status == 0:
                return
            self._begin(connection)
        if self._relay is not None:
            self._relay_events(self._relay, parser.take_body(), last=parser.complete)
        elif self._assembly is not None:
            self._assemble(self._assembly, parser.take_body(), last=parser.complete)
        elif parser.complete and self._phase is Phase.COLLECTING:
            last = parser.take_body()
            body = b"".join([*self._collected, last]) if self._collected else last
            self._answer(body, openai.usage_of_answer(body), connection.head().lines)
        else:
            self._receive_piece(parser.take_body())
        if self._phase is _ENDED:
            return
        if parser.complete:
            self._complete()
        else:
            self._arm(self._delays.idle)

    def _begin(self, connection: "UpstreamConnection") -> None:
        """The response's head is whole: what will be done with its body?"""
        streams = self._status < 300 and connection.head().event_stream
        if streams and self._body.stream:
            self._phase = Phase.HOLDING
            self._relay = EventRelay(self._route, hides_usage=self._added.usage, hides_progress=self._added.progress)
        elif streams and self._added.stream:
            self._phase = Phase.ASSEMBLING
            self._assembly = Assembly(self._route)
        else:
            self._phase = Phase.COLLECTING

    def _answer(self, body: bytes, usage: Usage | None, lines: bytes) -> None:
        """An answer that is whole: one write."""
        status, request = self._status, self._request
        overhead_ns = self._sent_at - self._read_at
        client = self._client
        plane = client.plane
        if plane.draining:
            request.keep_alive = False  # and the head says so
        if plane.cors.enabled:
            lines += client.cors_lines(request)
        head = client_head(request, status, lines, length=len(body), own_id=self.id, overhead_ns=overhead_ns)
        if self._turn is not None:
            self._settle(self._turn, _COMPLETED if status < 400 else Outcome.FAILED, usage, 0)
        client.transport.write(head + body)
        self._end(status, _OK if status < 400 else _ENGINE_ERROR, usage, keep_alive=request.keep_alive)

    def _relay_events(self, relay: EventRelay, data: bytes, *, last: bool) -> None:
        events = relay.feed(data) if data else b""
        if last:
            events += relay.close()
        if relay.failure is not None:
            self._fail_as_told(relay.failure)
        elif relay.begun:
            client = self._client
            if not self._first_content_at and relay.content_seen:
                self._first_content_at = time.monotonic_ns()
                if self._span is not None:
                    self._span.mark(genai_names.FIRST_TOKEN_EVENT)
            if (last or relay.ended) and self._turn is not None:
                self._settle(self._turn, Outcome.COMPLETED, relay.usage, relay.pieces)
            if self._phase is Phase.HOLDING:
                self._phase = Phase.STREAMING
                if self._ticket is not None and self._queue is not None:
                    self._queue.first_byte(self._ticket)
                client.transport.write(self._head(length=None) + (self._framed(events) if events else b""))
                if not client.writable:
                    self.client_paused()
            elif events:
                client.transport.write(chunk(events) if self._request.minor == 1 else events)

    def _assemble(self, assembly: Assembly, data: bytes, *, last: bool) -> None:
        """Gather the events of an answer that the client did not ask to be streamed."""
        try:
            assembly.feed(data, last=last)
        except ValueError as error:
            message = f"The replica's stream cannot be read: {error}."
            self._fail(Refusal(code="replica_protocol_error", message=message))
            return
        if assembly.failure is not None:
            self._fail_as_told(assembly.failure)
        elif last:
            body = assembly.answer()
            self._answer(body, openai.usage_of_answer(body), _JSON_LINES)

    def _receive_piece(self, data: bytes) -> None:
        """Gather a piece of an answer, or pass it on if the answer has become too large to gather."""
        if self._phase is Phase.COLLECTING:
            collected = self._collected = self._collected or []
            collected.append(data)
            if sum(map(len, collected)) <= MAX_COLLECTED_BYTES:
                return
            self._phase = Phase.PASSING
            data, self._collected = b"".join(collected), None
            self._client.transport.write(self._head(length=self._declared_length()))
            if not self._client.writable:
                self.client_paused()
        if self._turn is not None and self._connection is not None and self._connection.parser.complete:
            self._settle(self._turn, Outcome.COMPLETED if self._status < 400 else Outcome.FAILED, None, 0)
        if data:
            self._client.transport.write(data if self._declared_length() is not None else self._framed(data))

    def _declared_length(self) -> int | None:
        assert self._connection is not None
        return self._connection.parser.content_length

    def _complete(self) -> None:
        """A response that is not gathered is whole."""
        relay = self._relay
        if self._request.minor == 1 and (relay is not None or self._declared_length() is None):
            self._client.transport.write(LAST_CHUNK)
        usage = relay.usage if relay is not None else None
        self._end(self._status, _OK if self._status < 400 else _ENGINE_ERROR, usage, keep_alive=self._keeps_alive())

    def _head(self, *, length: int | None) -> bytes:
        assert self._connection is not None
        if self._client.plane.draining:
            self._request.keep_alive = False
        overhead_ns = self._sent_at - self._read_at
        lines = self._connection.head().lines + self._client.cors_lines(self._request)
        return client_head(self._request, self._status, lines, length=length, own_id=self.id, overhead_ns=overhead_ns)

    def _framed(self, data: bytes) -> bytes:
        return chunk(data) if self._request.minor == 1 else data

    def _keeps_alive(self) -> bool:
        """A body without a length ends with the connection where the client does not know chunks (HTTP/1.0)."""
        return self._request.keep_alive and self._request.minor == 1

    # Failures.

    def on_upstream_lost(self, reason: str) -> None:
        """The connection closed before the response was complete."""
        self._guarded(lambda: self._lose(reason))

    def _lose(self, reason: str) -> None:
        connection = self._connection
        assert connection is not None
        self._connection = None
        if self._phase is Phase.WAITING:
            since_sent = DurationNs(time.monotonic_ns() - self._sent_at)
            self._attempt_failed(classify_loss(reused=connection.served > 0, since_sent=since_sent), reason)
            return
        self._client.plane.suspect(connection.replica, reason)
        self._fail(_lost(self._body.model))

    def on_upstream_broken(self, reason: str) -> None:
        """The engine does not speak HTTP. The connection has been closed."""
        self._connection = None
        message = f"The replica's answer breaks HTTP/1.1: {reason}."
        self._guarded(lambda: self._fail(Refusal(code="replica_protocol_error", message=message)))

    def timed_out(self) -> None:
        """The engine has been silent for too long, or the client has not read."""
        if not self._client.writable:
            self._client.abort()  # `client_gone` follows
            return
        total = self._delays.total
        if total and time.monotonic_ns() - self._read_at >= total:
            message = f"The answer took longer than {total / _SECOND:g} s."
        else:
            waiting = self._phase in (Phase.CONNECTING, Phase.WAITING)
            message = "The replica did not begin to answer in time." if waiting else "The replica stopped answering."
            if self._replica is not None:
                self._client.plane.silent(self._replica)
        self._fail(Refusal(code="replica_timeout", message=message))

    def fail(self, refusal: Refusal) -> None:
        """End with an error, from outside: the worker is stopping, or something broke."""
        if self._phase is not Phase.ENDED:
            self._fail(refusal)

    def _fail(self, refusal: Refusal) -> None:
        """Tell the client in the way that is still open: a status, an error event, or the end of the connection."""
        self._drop_upstream()
        client, request = self._client, self._request
        status = refusal.spec.status or 500
        if self._phase is Phase.STREAMING:
            if self._route is Route.MESSAGES:
                event = anthropic.error_event(refusal, self.id)
            else:
                event = openai.error_event(refusal)
            client.transport.write(self._framed(event) + (LAST_CHUNK if request.minor == 1 else b""))
            usage = self._relay.usage if self._relay is not None else None
            self._end(status, refusal.code, usage, keep_alive=self._keeps_alive())
        elif self._phase is Phase.PASSING:
            self._end(status, refusal.code, None, keep_alive=False)
            client.abort()  # a body that was cut must not look whole
        else:
            self._end_span(status, refusal.code, None)
            self._release()
            route, model = self._route, self._body.model
            answers.refuse(client, request, refusal, model=model, route=route, own_id=self.id)

    def _fail_as_told(self, event: bytes) -> None:
        """The engine's first event is an error: pass it on as an answer with a status of its own."""
        told, body = openai.error_of_event(event)
        status = told or 502
        client, request, model = self._client, self._request, self._body.model
        self._drop_upstream()
        self._end_span(status, Reason.ENGINE_ERROR, None)
        self._release()
        answers.count(
            client, request, self.id, model=model, route=self._route, status=status, reason=Reason.ENGINE_ERROR
        )
        answers.answer(client, request, status, answers.JSON, body, own_id=self.id)

    # From the client.

    def client_gone(self) -> None:
        """The client disconnected: stop the engine, give everything back."""
        if self._phase is Phase.ENDED:
            return
        if self._phase is Phase.STREAMING:
            phase = DisconnectPhase.STREAMING
        else:
            phase = DisconnectPhase.BEFORE_FIRST_BYTE if self._body.stream else DisconnectPhase.UNARY
        self._meters.disconnects[phase].add()
        self._drop_upstream()
        usage = self._relay.usage if self._relay is not None else None
        self._end(answers.CLIENT_CLOSED_REQUEST, Reason.CLIENT_DISCONNECTED, usage, keep_alive=False)

    def client_paused(self) -> None:
        """The client does not keep up: read no more from the engine, which then stops too."""
        if self._connection is not None and self._phase in (Phase.STREAMING, Phase.PASSING):
            self._connection.pause()
            self._arm(self._delays.idle)

    def client_resumed(self) -> None:
        """The client has caught up."""
        if self._connection is not None and self._phase in (Phase.STREAMING, Phase.PASSING):
            self._connection.resume()
            self._arm(self._delays.idle)

    # The end.

    def _end_turn(self, turn: "Turn", reason: str, usage: Usage | None) -> None:
        """Of a turn that was not settled before its end."""
        if not self._sent_at:
            turn.give_up(time.monotonic_ns())
            return
        if reason == Reason.OK:
            outcome = Outcome.COMPLETED
        elif reason == Reason.CLIENT_DISCONNECTED:
            outcome = Outcome.CANCELLED
        else:
            outcome = Outcome.INTERRUPTED if self._phase in (Phase.STREAMING, Phase.PASSING) else Outcome.FAILED
        self._settle(turn, outcome, usage, self.generated)

    def _drop_upstream(self) -> None:
        """Stop the engine's work on this request, if it has any."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    def _release(self) -> None:
        """Give back what is in flight, once."""
        self._phase = Phase.ENDED
        if self._turn is not None and not self._turn.ended:
            self._end_turn(self._turn, Reason.ENGINE_ERROR, None)
        if self._ticket is not None:
            self._leave(self._ticket, None)
        if self._replica is not None:
            self._replica.release(self._weight)
            self._replica = None

    def _end(self, status: int, reason: str, usage: Usage | None, *, keep_alive: bool) -> None:
        turn = self._turn
        if turn is not None and not turn.ended:
            self._end_turn(turn, reason, usage)
        if self._ticket is not None:
            self._leave(self._ticket, usage)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release()
        self._phase = _ENDED
        if self._span is not None:
            self._end_span(status, reason, usage)
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.release(self._weight)
        self._tell_end(status, reason, usage, replica)
        self._client.ended(keep_alive=keep_alive)

    def on_defect(self, error: Exception) -> None:
        """An exception that must not have happened ends this exchange, and nothing else."""
        self._client.plane.defect(error, self.id)
        self.fail(Refusal(code="internal_error", message="The gateway failed on this request."))


def _unreachable(model: str) -> Refusal:
    return Refusal(code="replica_unreachable", message=f"No replica of the model `{model}` could be reached.")


def _lost(model: str) -> Refusal:
    message = f"The replica of the model `{model}` went away before the answer was complete."
    return Refusal(code="replica_lost", message=message)
