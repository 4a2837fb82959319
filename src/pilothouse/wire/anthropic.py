"""The Anthropic dialect's errors. Requests and answers pass through: the engines speak it themselves."""

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.model.ids import RequestId
from pilothouse.wire import sse

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

_encode = msgspec.json.Encoder().encode


def error_body(refusal: Refusal, request_id: RequestId) -> bytes:
    """`{"type": "error", "error": {type, message}, "request_id"}`, as Anthropic's API reference has it."""
    status = refusal.spec.status or 500
    error = {"type": _ERROR_TYPES.get(status, "api_error"), "message": refusal.message}
    return _encode({"type": "error", "error": error, "request_id": request_id})


def error_event(refusal: Refusal, request_id: RequestId) -> bytes:
    """The error object as an event inside a stream."""
    return sse.event(error_body(refusal, request_id), b"error")
