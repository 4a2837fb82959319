"""What is known of an exchange, and what is told of it: its span, its turn, its metrics and its line in the log."""

import enum
import time
from typing import TYPE_CHECKING

from pilothouse.gateway.meters import ModelMeters
from pilothouse.gateway.routing_table import Candidate
from pilothouse.gateway.tracing import begin_span, end_span
from pilothouse.model.ids import DeploymentName, RequestId
from pilothouse.model.ledger import Outcome
from pilothouse.model.requests import Route, Usage
from pilothouse.wire.http1 import Request
from pilothouse.wire.inference_body import InferenceBody

if TYPE_CHECKING:
    from pilothouse.gateway.client_connection import ClientConnection
    from pilothouse.gateway.turns import Turn
    from pilothouse.gateway.upstream import Replica
    from pilothouse.telemetry.traces import Span, Traces

_SECOND = 1e9


class Phase(enum.Enum):
    """Where an exchange is."""

    ADMITTING = enum.auto()
    QUEUED = enum.auto()
    CONNECTING = enum.auto()
    WAITING = enum.auto()
    COLLECTING = enum.auto()
    ASSEMBLING = enum.auto()
    HOLDING = enum.auto()
    STREAMING = enum.auto()
    PASSING = enum.auto()
    ENDED = enum.auto()


class ExchangeRecord:
    """The base of `Exchange`, which alone changes what is here. Times are monotonic nanoseconds, 0 for not yet."""

    __slots__ = (
        "_attempts",
        "_body",
        "_candidate",
        "_candidates",
        "_client",
        "_first_content_at",
        "_meters",
        "_phase",
        "_read_at",
        "_replica",
        "_request",
        "_route",
        "_sent_at",
        "_span",
        "_started_at",
        "_status",
        "_turn",
        "id",
    )

    def __init__(
        self,
        client: "ClientConnection",
        request: Request,
        body: InferenceBody,
        route: Route,
        candidates: tuple[Candidate, ...],
        meters: ModelMeters,
    ) -> None:
        self.id: RequestId = client.plane.new_request_id()
        self._client = client
        self._request = request
        self._body = body
        self._route = route
        self._candidates = candidates
        self._meters = meters
        self._phase = _CONNECTING
        self._started_at = client.received_at
        self._read_at = client.read_at
        self._sent_at = 0
        self._first_content_at = 0
        self._status = 0
        self._attempts = 0
        self._replica: Replica | None = None
        self._candidate: Candidate | None = None  # what the request was sent to last
        self._span: Span | None = None
        self._turn: Turn | None = None

    def _begin_span(self, traces: "Traces") -> None:
        caller, age_ns = self._client.caller, time.monotonic_ns() - self._started_at
        tenant = caller.tenant_id if caller is not None else None
        self._span = begin_span(traces, self._request, self._body, self._route, self.id, tenant, age_ns)

    def _settle(self, turn: "Turn", outcome: Outcome, usage: Usage | None, generated: int) -> None:
        """Put the turn on record and give back what it reserved and has not used. What comes later changes nothing."""
        if turn.ended:
            return
        now, offset = time.monotonic_ns(), self._client.plane.wall_offset
        first_content_at, candidate = self._first_content_at, self._candidate
        turn.end(
            outcome,
            now,
            now + offset,
            self.id,
            candidate.deployment.name if candidate is not None else DeploymentName(""),
            usage,
            generated,
            first_content_at + offset if first_content_at else None,
        )

    def _end_span(self, status: int, reason: str, usage: Usage | None) -> None:
        span, self._span = self._span, None
        if span is None:
            return
        replica, candidate = self._replica, self._candidate
        end_span(
            span,
            status=status,
            reason=reason,
            engine=candidate.deployment.engine if candidate is not None else None,
            deployment=candidate.deployment.name if candidate is not None else None,
            replica=replica.alias if replica is not None else None,
            attempts=self._attempts,
            overhead_ns=self._sent_at - self._read_at if self._sent_at else 0,
            usage=usage,
        )

    def _tell_end(self, status: int, reason: str, usage: Usage | None, replica: "Replica | None") -> None:
        """Count the request, and write it down."""
        client, meters = self._client, self._meters
        now = time.monotonic_ns()
        sent_at, first_content_at, started_at = self._sent_at, self._first_content_at, self._started_at
        overhead_ns = sent_at - self._read_at if sent_at else 0
        access_log = client.plane.access_log
        if access_log is not None and (access_log.takes_all or access_log.takes(self.id, status)):
            body, request, caller = self._body, self._request, client.caller
            assert caller is not None, "no request gets here without a key"
            alias = replica.alias if replica is not None else None
            access_log.note(
                (self._route, status, reason, body.model, caller.tenant_id, caller.id, alias, body.stream),
                now,
                self.id,
                now - started_at,
                len(request.body),
                self._attempts,
                overhead_ns,
                first_content_at - started_at if first_content_at else 0,
                request.request_id,
                usage,
            )
        meters.exchange_ended(self._route, status, reason, (now - started_at) / _SECOND, overhead_ns / _SECOND, usage)
        if first_content_at:
            meters.first_token.observe((first_content_at - started_at) / _SECOND)
            if usage is not None and usage.output_tokens > 1:
                meters.inter_token.observe((now - first_content_at) / _SECOND / (usage.output_tokens - 1))


_CONNECTING = Phase.CONNECTING
