"""Answers that the gateway gives itself: errors, the model list, health."""

import time
from typing import TYPE_CHECKING

from pilothouse.gateway.heads import echoed_id
from pilothouse.model.errors import Refusal
from pilothouse.model.ids import RequestId
from pilothouse.wire import anthropic, openai
from pilothouse.wire.http1 import Header, Request, response_head

if TYPE_CHECKING:
    from pilothouse.gateway.client_connection import ClientConnection

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"

CLIENT_CLOSED_REQUEST = 499
"""As nginx's log has it: the client went away, no status was sent."""

_MESSAGES_PATH = b"/v1/messages"


def connection_headers(request: Request) -> list[Header]:
    """What to say about the connection's future, where it is not the version's default."""
    if not request.keep_alive:
        return [(b"connection", b"close")]
    return [(b"connection", b"keep-alive")] if request.minor == 0 else []


def answer(
    client: "ClientConnection",
    request: Request,
    status: int,
    content_type: bytes,
    body: bytes,
    *,
    own_id: RequestId | None = None,
    extra: tuple[Header, ...] = (),
) -> None:
    """Write a whole answer and end the request. To HEAD the body is not sent, its length is."""
    own_id = own_id or client.plane.new_request_id()
    headers = [
        (b"content-type", content_type),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", echoed_id(request, own_id)),
        (b"x-pilothouse-request-id", own_id.encode()),
        *extra,
        *connection_headers(request),
    ]
    cors = client.plane.cors.lines(request)
    head = response_head(status, headers, cors)
    client.transport.write(head if request.method == b"HEAD" else head + body)
    client.ended(keep_alive=request.keep_alive)


def count(
    client: "ClientConnection", request: Request, own_id: RequestId, *, model: str, route: str, status: int, reason: str
) -> None:
    """Count, and write down, a request that the gateway answers itself. `model` and `route` are bounded labels."""
    plane = client.plane
    plane.meters.refused(model, route, status, reason)
    access_log = plane.access_log
    if access_log is not None and access_log.takes(own_id, status):
        now, caller = time.monotonic_ns(), client.caller
        tenant_and_key = (caller.tenant_id, caller.id) if caller is not None else (None, None)
        access_log.note(
            (route, status, reason, model, *tenant_and_key, None, False),
            now,
            own_id,
            now - client.received_at if client.received_at else 0,
            len(request.body),
            client_request_id=request.request_id,
        )


_UNREADABLE = Request(b"", b"", 1, keep_alive=False)
"""Stands for a request whose head could not be read."""


def refuse(
    client: "ClientConnection",
    request: Request | None,
    refusal: Refusal,
    *,
    model: str,
    route: str,
    own_id: RequestId | None = None,
    extra: tuple[Header, ...] = (),
    retry_after_s: int | None = None,
) -> None:
    """Write an error of the table in the dialect of the route, count it, and end the request.

    `retry_after_s` is said in the place of the table's; neither is said where retrying does not help.
    """
    request = request or _UNREADABLE
    own_id = own_id or client.plane.new_request_id()
    spec = refusal.spec
    status = spec.status or 500
    anthropic_dialect = request.path == _MESSAGES_PATH
    body = anthropic.error_body(refusal, own_id) if anthropic_dialect else openai.error_body(refusal)
    retry_after_s = retry_after_s or spec.retry_after_s
    if retry_after_s is not None:
        extra = (*extra, (b"retry-after", b"%d" % retry_after_s))
    if status == 401:
        extra = (*extra, (b"www-authenticate", b"Bearer"))
    count(client, request, own_id, model=model, route=route, status=status, reason=refusal.code)
    answer(client, request, status, JSON, body, own_id=own_id, extra=extra)
