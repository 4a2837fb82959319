"""A request as a span: what is told of it at its beginning and at its end."""

from typing import Any

from pilothouse.model.ids import RequestId, TenantId
from pilothouse.model.requests import Route, Usage
from pilothouse.telemetry import genai_names as names
from pilothouse.telemetry.catalogue import Reason
from pilothouse.telemetry.traces import Span, Traces
from pilothouse.wire.http1 import Header, Request
from pilothouse.wire.inference_body import InferenceBody

_SECOND = 1e9


def begin_span(
    traces: Traces,
    request: Request,
    body: InferenceBody,
    route: Route,
    request_id: RequestId,
    tenant: TenantId | None,
    age_ns: int,
) -> Span:
    """The span of a request that began `age_ns` ago."""
    operation = names.OPERATIONS[route]
    attributes: dict[str, Any] = {
        names.OPERATION_NAME: operation,
        names.REQUEST_MODEL: body.model,
        names.HTTP_METHOD: "POST",
        names.HTTP_ROUTE: str(route),
        names.REQUEST_ID: request_id,
    }
    if body.max_output_tokens > 0:
        attributes[names.REQUEST_MAX_TOKENS] = body.max_output_tokens
    if tenant is not None:
        attributes[names.TENANT] = tenant
    return traces.begin(request.trace, f"{operation} {body.model}", age_ns, attributes)


def engine_trace(span: Span, trace: list[Header]) -> list[Header]:
    """The trace headers for the engine: below our span, with the client's `tracestate`."""
    return [(b"traceparent", span.traceparent), *(header for header in trace if header[0] == b"tracestate")]


def end_span(
    span: Span,
    *,
    status: int,
    reason: str,
    engine: str | None,
    deployment: str | None,
    replica: str | None,
    attempts: int,
    overhead_ns: int,
    usage: Usage | None,
) -> None:
    """The request is over. A client that left is no error of ours."""
    failed = reason not in (Reason.OK, Reason.CLIENT_DISCONNECTED)
    span.end(
        {
            names.HTTP_STATUS_CODE: status,
            names.ERROR_TYPE: None if reason == Reason.OK else str(reason),
            names.PROVIDER_NAME: engine,
            names.DEPLOYMENT: deployment,
            names.REPLICA: replica,
            names.ATTEMPTS: attempts,
            names.OVERHEAD: overhead_ns / _SECOND if overhead_ns else None,
            names.USAGE_INPUT_TOKENS: usage.input_tokens if usage is not None else None,
            names.USAGE_OUTPUT_TOKENS: usage.output_tokens if usage is not None else None,
            names.USAGE_CACHED_TOKENS: usage.cached_tokens if usage is not None else None,
        },
        error=str(reason) if failed else None,
    )
