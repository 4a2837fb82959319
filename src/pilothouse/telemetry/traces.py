"""Traces by OpenTelemetry: one span for each request that is sampled, sent by OTLP over HTTP. An extra.

A client that sends a `traceparent` has decided whether its request is traced; of the others a share is drawn. The
engine gets the span's own `traceparent`, so that its spans hang below it. Spans are handed over to a thread that sends
them in batches; a collector that does not answer loses them, and delays nobody.
"""

import re
import time
from typing import TYPE_CHECKING, Any

from pilothouse.model.errors import PilothouseError
from pilothouse.policy.draw import Draws

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.sdk.trace import Span as SdkSpan

    from pilothouse.wire.http1 import Header

_TRACEPARENT = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
"""W3C Trace Context, 2.2.3."""

_SAMPLED_FLAG = 0x01
_MILLION = 1_000_000
_EXPORT_TIMEOUT_S = 5
_FLUSH_MS = 2000


def require_tracing() -> None:
    """See that the packages of the extra are there.

    Raises PilothouseError `tracing_not_installed`.
    """
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError as error:
        raise PilothouseError("tracing_not_installed", str(error)) from error


class Traces:
    """One worker's tracer.

    `endpoint` is the collector's base URL; `/v1/traces` is added. `sample` is the share of requests, 0 to 1, that are
    traced without a client's word. Raises PilothouseError `tracing_not_installed` without the extra.
    """

    def __init__(self, endpoint: str, sample: float, *, draws: Draws, fleet: str, worker: int, version: str) -> None:
        require_tracing()
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        resource = Resource(
            {
                "service.name": "pilothouse",
                "service.namespace": fleet,
                "service.instance.id": f"worker-{worker}",
                "service.version": version,
            }
        )
        # Who is traced is decided here: the SDK's samplers cost ten times as much for each request that is not.
        self._draws = draws
        self._sampled = round(sample * _MILLION)
        self._provider: TracerProvider = TracerProvider(sampler=ALWAYS_ON, resource=resource)
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("pilothouse.gateway", version)

    def samples(self, trace: "Sequence[Header]", request: str) -> bool:
        """Whether the request with this id and these trace headers is traced: as its client says, else by chance."""
        found = _parse(trace) if trace else None
        if found is not None:
            return bool(int(found[3], 16) & _SAMPLED_FLAG)
        return self._draws.below(_MILLION, request, "trace") < self._sampled

    def begin(self, trace: "Sequence[Header]", name: str, age_ns: int, attributes: "Mapping[str, Any]") -> "Span":
        """A span that began `age_ns` ago, below the client's if it sent one."""
        from opentelemetry.trace import SpanKind

        span = self._tracer.start_span(
            name,
            context=_parent(_parse(trace)),
            kind=SpanKind.SERVER,
            attributes=dict(attributes),
            start_time=time.time_ns() - age_ns,
        )
        return Span(span)

    def close(self) -> None:
        """Send what is left, as far as that goes within two seconds."""
        self._provider.force_flush(_FLUSH_MS)
        self._provider.shutdown()


class Span:
    """One request being traced. `traceparent` is what an engine is to be told."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: "SdkSpan | Any") -> None:
        self._span = span
        context = span.get_span_context()
        flags = int(context.trace_flags)
        self.traceparent = b"00-%032x-%016x-%02x" % (context.trace_id, context.span_id, flags)

    def mark(self, name: str) -> None:
        """Something happened now."""
        self._span.add_event(name)

    def end(self, attributes: "Mapping[str, Any]", error: str | None = None) -> None:
        """The request is over; `error` is why it failed. Values that are `None` are left out."""
        self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


def _parse(trace: "Sequence[Header]") -> re.Match[bytes] | None:
    """The client's `traceparent`, if it is a valid one."""
    return next((_TRACEPARENT.fullmatch(value) for name, value in trace if name == b"traceparent"), None)


def _parent(found: re.Match[bytes] | None) -> Any:
    """The context that a client's header stands for; an empty one, for a new trace, without a valid header."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if found is None:
        return Context()
    context = SpanContext(
        trace_id=int(found[1], 16),
        span_id=int(found[2], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(found[3], 16) & _SAMPLED_FLAG),
    )
    return set_span_in_context(NonRecordingSpan(context), Context()) if context.is_valid else Context()
