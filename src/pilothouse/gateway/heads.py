"""The heads that the gateway writes: a request's towards the engine, a response's towards the client.

Both are of our own making. What the other side sent is carried over line by line, less what belongs to the hop and
what must not cross it.
"""

import re
from typing import TYPE_CHECKING

from pilothouse.model.ids import RequestId
from pilothouse.model.requests import Route
from pilothouse.wire.http1 import REASONS, Header, Request

if TYPE_CHECKING:
    from pilothouse.gateway.routing_table import Candidate

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"}
    | {b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings"}
)
"""RFC 9110, 7.6.1, and what older clients send."""

_NOT_TO_ENGINES = HOP_BY_HOP | {
    b"host", b"content-length", b"expect",  # ours to say
    b"authorization", b"x-api-key", b"cookie",  # the client's credentials are for us alone
    b"accept-encoding",  # events inside a compressed body could not be seen
    b"x-request-id",  # the engine gets an id of our own
    b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip",
}  # fmt: skip

_NOT_TO_CLIENTS = HOP_BY_HOP | {
    b"content-length", b"server", b"x-request-id",
    b"access-control-allow-origin", b"access-control-allow-credentials",  # who may call is not the engine's to say
    b"access-control-allow-headers", b"access-control-allow-methods", b"access-control-expose-headers",
    b"set-cookie",
}  # fmt: skip

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""W3C Trace Context, 3.2.2."""

_ECHOED_ID = re.compile(rb"[\x21-\x7e]{1,128}")

_TRACE = frozenset({b"traceparent", b"tracestate"})


def echoed_request_id(headers: list[Header], own: RequestId) -> bytes:
    """The client's `x-request-id` if it is short and printable, else our own."""
    for name, value in headers:
        if name == b"x-request-id":
            return value if _ECHOED_ID.fullmatch(value) else own.encode()
    return own.encode()


def upstream_head(candidate: "Candidate", route: Route, headers: list[Header], length: int, own_id: RequestId) -> bytes:
    """The request head for a replica, to be followed by `length` bytes of body."""
    reserved = candidate.reserved_headers
    connection_named = _named_by_connection(headers)
    traced = any(name == b"traceparent" and _TRACEPARENT.fullmatch(value) for name, value in headers)
    lines = [candidate.replica.request_head(route)]
    for name, value in headers:
        if name in _NOT_TO_ENGINES or name in reserved or name in connection_named:
            continue
        if name in _TRACE and not traced:
            continue
        lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"content-length: %d\r\nx-request-id: %b\r\n\r\n" % (length, own_id.encode()))
    return b"".join(lines)


def _named_by_connection(headers: list[Header]) -> frozenset[bytes]:
    """Headers that `Connection` declares to be for this hop only."""
    named: frozenset[bytes] = frozenset()
    for name, value in headers:
        if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            named |= {token.strip().lower() for token in value.split(b",")}
    return named


def client_head(
    request: Request,
    status: int,
    headers: list[Header],
    *,
    length: int | None,
    own_id: RequestId,
    overhead_ns: int,
) -> bytes:
    """The response head for a client. `length` is the body's, `None` if it is not known (chunked, or to the close)."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, REASONS.get(status, b"-"))]
    for name, value in headers:
        if name not in _NOT_TO_CLIENTS:
            lines.append(b"%b: %b\r\n" % (name, value))
    own = own_id.encode()
    lines.append(
        b"x-request-id: %b\r\nx-pilothouse-request-id: %b\r\nx-pilothouse-overhead-ms: %.3f\r\n"
        % (echoed_request_id(request.headers, own_id), own, overhead_ns / 1e6)
    )
    keep_alive = request.keep_alive
    if length is not None:
        lines.append(b"content-length: %d\r\n" % length)
    elif request.minor == 1:
        lines.append(b"transfer-encoding: chunked\r\n")
    else:
        keep_alive = False
    if not keep_alive:
        lines.append(b"connection: close\r\n")
    elif request.minor == 0:
        lines.append(b"connection: keep-alive\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)
