"""The heads that the gateway writes: a request's towards the engine, a response's towards the client.

Both are of our own making. What the other side sent is carried over line by line, less what belongs to the hop and
what must not cross it.
"""

import re

from pilothouse.model.ids import RequestId
from pilothouse.model.units import SECOND, DurationNs
from pilothouse.wire.http1 import REASONS, Header, Request

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"}
    | {b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings"}
)
"""RFC 9110, 7.6.1, and what older clients send."""

_NOT_TO_ENGINES = HOP_BY_HOP | {
    b"authorization", b"x-api-key", b"cookie",  # the client's credentials are for us alone
    b"accept-encoding",  # events inside a compressed body could not be seen
    b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip",
}  # fmt: skip

_NOT_TO_CLIENTS = HOP_BY_HOP | {
    b"server", b"x-request-id",
    b"access-control-allow-origin", b"access-control-allow-credentials",  # who may call is not the engine's to say
    b"access-control-allow-headers", b"access-control-allow-methods", b"access-control-expose-headers",
    b"set-cookie",
}  # fmt: skip

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""W3C Trace Context, 3.2.2."""

_ECHOED_ID = re.compile(rb"[\x21-\x7e]{1,128}")

DEFAULT_KEEP_ALIVE = DurationNs(4 * SECOND)
"""Below the 5 s after which uvicorn (vLLM, SGLang) and cpp-httplib (llama.cpp) close an idle connection."""

KEEP_ALIVE_MARGIN = DurationNs(1 * SECOND)
"""Taken off what a server announces, so that we close first and never write into its closing."""


def echoed_id(request: Request, own: RequestId) -> bytes:
    """The client's `x-request-id` if it is short and printable, else our own."""
    theirs = request.request_id
    return theirs if theirs is not None and _ECHOED_ID.fullmatch(theirs) else own.encode()


def forwarded_lines(headers: list[Header], reserved: frozenset[bytes]) -> bytes:
    """The header lines of a request that an engine may see. `reserved` are its internal ones, never a client's."""
    hop = _named_by_connection(headers)
    return b"".join(
        b"%b: %b\r\n" % (name, value)
        for name, value in headers
        if name not in _NOT_TO_ENGINES and name not in reserved and name not in hop
    )


def trace_lines(trace: list[Header]) -> bytes:
    """The trace context of a request, if it is a valid one."""
    if not any(name == b"traceparent" and _TRACEPARENT.fullmatch(value) for name, value in trace):
        return b""
    return b"".join(b"%b: %b\r\n" % header for header in trace)


def _named_by_connection(headers: list[Header]) -> frozenset[bytes]:
    """Headers that `Connection` declares to be for this hop only."""
    named: frozenset[bytes] = frozenset()
    for name, value in headers:
        if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            named |= {token.strip().lower() for token in value.split(b",")}
    return named


class EngineHead:
    """What a response's head says, read once: engines repeat theirs from answer to answer.

    `lines` are the header lines that a client may see. `keep_alive` is how long the connection may be used again.
    """

    __slots__ = ("event_stream", "headers", "keep_alive", "lines")

    def __init__(self, headers: list[Header]) -> None:
        self.headers = headers
        self.lines = b"".join(b"%b: %b\r\n" % header for header in headers if header[0] not in _NOT_TO_CLIENTS)
        self.event_stream = any(
            name == b"content-type" and value.lower().startswith(b"text/event-stream") for name, value in headers
        )
        self.keep_alive = _announced_keep_alive(headers)


def _announced_keep_alive(headers: list[Header]) -> DurationNs:
    """From `Keep-Alive: timeout=5, max=100`."""
    for name, value in headers:
        if name == b"keep-alive":
            for part in value.split(b","):
                key, _, number = part.strip().partition(b"=")
                if key == b"timeout" and number.isdigit() and len(number) < 6:
                    return DurationNs(max(0, int(number) * SECOND - KEEP_ALIVE_MARGIN))
    return DEFAULT_KEEP_ALIVE


def client_head(
    request: Request, status: int, engine_lines: bytes, *, length: int | None, own_id: RequestId, overhead_ns: int
) -> bytes:
    """The response head for a client. `length` is the body's, `None` if it is not known (chunked, or to the close)."""
    keep_alive = request.keep_alive
    if length is not None:
        framing = b"content-length: %d\r\n" % length
    elif request.minor == 1:
        framing = b"transfer-encoding: chunked\r\n"
    else:
        framing = b""
        keep_alive = False
    if not keep_alive:
        framing += b"connection: close\r\n"
    elif request.minor == 0:
        framing += b"connection: keep-alive\r\n"
    own = own_id.encode()
    return (
        b"HTTP/1.1 %d %b\r\n%bx-request-id: %b\r\nx-pilothouse-request-id: %b\r\n"
        b"x-pilothouse-overhead-ms: %d.%03d\r\n%b\r\n"
        % (
            status,
            REASONS.get(status, b"-"),
            engine_lines,
            own if request.request_id is None else echoed_id(request, own_id),
            own,
            *divmod(overhead_ns // 1000, 1000),
            framing,
        )
    )
