"""The client's side of the byte path: one connection, its requests one after the other.

    idle > head > body > exchange > idle ...      and, after an answer that ends the connection: lingering > closed

A connection has at most one request under way. What a client pipelines behind it waits in the parser.
"""

import asyncio
import time
from typing import TYPE_CHECKING, cast

from pilothouse.gateway import answers, routes
from pilothouse.gateway.auth import authenticate
from pilothouse.gateway.callers import Caller
from pilothouse.gateway.heads import forwarded_lines
from pilothouse.gateway.plane import DataPlane
from pilothouse.model.errors import Refusal
from pilothouse.model.units import SECOND, DurationNs
from pilothouse.runtime.timer_wheel import NEVER, UNPLACED
from pilothouse.telemetry.catalogue import NO_MODEL
from pilothouse.wire.http1 import CONTINUE, Header, Request, RequestParser

if TYPE_CHECKING:
    from pilothouse.gateway.exchange import Exchange
    from pilothouse.gateway.usage_request import UsageRequest

WRITE_HIGH_WATER = 64 * 1024
"""64 KiB unsent to a client before its engine is no longer read: asyncio's own default, about 300 events."""

LINGER = DurationNs(2 * SECOND)
"""After an early answer, how long to go on reading what the client still sends, so that a reset does not destroy the
answer on its way (RFC 9112, 9.6)."""

MAX_LINGER_BYTES = 1024 * 1024
"""And how much of it."""


class ClientConnection(asyncio.Protocol):
    """One client connection."""

    __slots__ = (
        "_advancing",
        "_checked",
        "_cors_headers",
        "_cors_lines",
        "_forwarded",
        "_forwarded_for",
        "_known_generation",
        "_known_headers",
        "_linger_bytes",
        "_lingering",
        "_paused_reading",
        "_unsent",
        "caller",
        "closed",
        "deadline",
        "exchange",
        "parser",
        "plane",
        "read_at",
        "received_at",
        "transport",
        "visited_at",
        "writable",
    )

    def __init__(self, plane: DataPlane) -> None:
        limits = plane.limits
        self.plane = plane
        self.parser = RequestParser(
            max_head_bytes=limits.max_head_bytes,
            max_header_count=limits.max_header_count,
            max_body_bytes=limits.max_body_bytes,
        )
        self.exchange: Exchange | UsageRequest | None = None
        self.deadline = NEVER
        self.visited_at = UNPLACED
        self.closed = False
        self.writable = True
        self.received_at = 0  # when the first byte of the request under way was read
        self.read_at = 0  # when the last byte of it was
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)  # until connection_made
        self._checked: Request | None = None
        # What was made of the last head: bounded to one, and gone with the connection.
        self._known_headers: list[Header] = []
        self._known_generation: object = None
        self.caller: Caller | None = None  # of the request last authenticated
        self._forwarded = b""
        self._forwarded_for: frozenset[bytes] = frozenset()
        self._cors_headers: list[Header] = []
        self._cors_lines = b""
        self._advancing = False
        self._lingering = False
        self._linger_bytes = 0
        self._paused_reading = False
        self._unsent = 1 << 62  # of the last answer, when last looked at while lingering

    # asyncio's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        self.plane.connections.add(self)
        self.plane.meters.connections.add(1)
        self.plane.wheel.arm(self, self.plane.delays.idle)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._lingering:
            self._linger_bytes += len(data)
            if self._linger_bytes > MAX_LINGER_BYTES:
                self.abort()
            return
        parser = self.parser
        self.read_at = time.monotonic_ns()
        try:
            request = parser.again(data) if self.exchange is None else None
            if request is not None:
                self.received_at = self.read_at
                if self.plane.draining:
                    request.keep_alive = False
                routes.dispatch(self, request)
                return
            if not parser.in_message and not parser.complete:
                self.received_at = self.read_at
            parser.feed(data)
            if self.exchange is None and len(parser.complete) == 1 and not parser.in_message:
                self._begin(parser.complete.popleft())  # one whole request in one read
            else:
                self._advance()
        except Exception as error:
            self._defect(error)

    def eof_received(self) -> bool:
        """The client will send no more. Half-closing clients are treated as gone, as Envoy and Go do."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or we closed."""
        self.closed = True
        self.plane.connections.discard(self)
        self.plane.meters.connections.add(-1)
        self.plane.wheel.disarm(self)
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            try:
                exchange.client_gone()
            except Exception as error:
                self.plane.defect(error, exchange.id)

    def pause_writing(self) -> None:
        """The client reads more slowly than its engine writes."""
        self.writable = False
        if self.exchange is not None:
            self.exchange.client_paused()
        elif not self._lingering:
            self._hold_back()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.writable = True
        if self.exchange is not None:
            self.exchange.client_resumed()
            return
        try:
            self._advance()
        except Exception as error:
            self._defect(error)

    def on_deadline(self) -> None:
        """A time-out, of whatever the connection was doing."""
        if self.exchange is not None:
            self.exchange.timed_out()
        elif self._lingering and 0 < (unsent := self.transport.get_write_buffer_size()) < self._unsent:
            self._unsent = unsent  # the answer is still on its way to a slow reader
            self.plane.wheel.arm(self, self.plane.delays.idle)
        elif self._lingering or not self.writable or not self.parser.in_message:
            self.abort()
        else:
            what = "head" if self.parser.current is None else "body"
            message = f"The request's {what} did not arrive in time."
            self._refuse(self.parser.current, Refusal(code="request_timeout", message=message))

    # What an exchange and the worker call.

    def authenticate(self, request: Request) -> Caller | Refusal:
        """Who is behind a request. A client repeats its headers: with the same ones and no news, it is the same."""
        plane, caller = self.plane, self.caller
        generation = plane.callers.generation
        if caller is not None and generation is self._known_generation:
            known = request.headers is self._known_headers or request.headers == self._known_headers
            if known and self.read_at + plane.wall_offset < caller.expires_at:
                return caller
        self.caller = None
        found = authenticate(request.headers, plane, self.read_at + plane.wall_offset)
        if isinstance(found, Refusal):
            return found
        address = self.transport.get_extra_info("peername") or ("",)
        refusal = found.check(str(address[0]), self.read_at + plane.wall_offset)
        if refusal is not None:
            return refusal
        self._known_headers, self._known_generation, self.caller = request.headers, generation, found
        self._forwarded = b""
        return found

    def sees(self, model: str) -> bool:
        """Whether the caller last authenticated may use a model."""
        return self.caller is not None and self.caller.sees(model)

    def forwarded_lines(self, reserved: frozenset[bytes]) -> bytes:
        """The header lines of the request last authenticated that an engine may see."""
        if not self._forwarded or reserved is not self._forwarded_for:
            self._forwarded = forwarded_lines(self._known_headers, reserved)
            self._forwarded_for = reserved
        return self._forwarded

    def cors_lines(self, request: Request) -> bytes:
        """The header lines that let a web page read the answer. A client repeats its headers, so they are kept."""
        if request.headers is not self._cors_headers:
            self._cors_headers, self._cors_lines = request.headers, self.plane.cors.lines(request)
        return self._cors_lines

    def ended(self, *, keep_alive: bool) -> None:
        """The answer to the request under way is written, whole."""
        self.exchange = None
        if self.closed:
            return
        if not keep_alive:
            self.close()
            return
        plane = self.plane
        plane.wheel.arm(self, plane.delays.drained_idle if plane.draining else plane.delays.idle)
        parser = self.parser
        if (parser.complete or parser.in_message or parser.refusal or not self.writable) and not self._advancing:
            self._advance()

    def close(self) -> None:
        """Close once everything written has been sent, and what the client still sends has been read and dropped."""
        if self.closed or self._lingering:
            return
        self._lingering = True
        self.plane.wheel.arm(self, LINGER)
        self._resume_reading()
        if self.parser.in_message and self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def abort(self) -> None:
        """Close now, whatever is unsent."""
        self.transport.abort()

    # One request after the other.

    def _advance(self) -> None:
        self._advancing = True
        parser = self.parser
        while self.exchange is None and self.writable and not self._lingering and not self.closed:
            if parser.complete:
                self._begin(parser.complete.popleft())
            elif parser.refusal is not None:
                self._refuse(parser.current, parser.refusal)
            elif parser.current is not None:
                self._check_head(parser.current)
                break
            else:
                if parser.in_message and self.received_at == self.read_at:
                    # Once for a head, at its first byte: it must not help to send one byte at a time.
                    self.plane.wheel.arm(self, self.plane.delays.head)
                break
        self._advancing = False
        # A client that pipelines could fill our memory with requests while its first answer is under way, and with
        # answers that it does not read.
        waits = not self.writable if self.exchange is None else parser.complete or parser.in_message
        if waits and not self._lingering:
            self._hold_back()
        else:
            self._resume_reading()

    def _hold_back(self) -> None:
        if not self._paused_reading and not self.transport.is_closing():
            self._paused_reading = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused_reading:
            self._paused_reading = False
            if not self.transport.is_closing():
                self.transport.resume_reading()

    def _begin(self, request: Request) -> None:
        self._checked = None
        if self.plane.draining:
            request.keep_alive = False
        routes.dispatch(self, request)

    def _check_head(self, request: Request) -> None:
        """The body is still coming: refuse early what can be refused, and say that it may come."""
        self.plane.wheel.arm(self, self.plane.delays.body)
        if self._checked is request:
            return
        self._checked = request
        refusal = routes.check(self, request)
        if refusal is not None:
            self._refuse(request, refusal)
        elif request.expects_continue:
            self.transport.write(CONTINUE)

    def _refuse(self, request: Request | None, refusal: Refusal) -> None:
        """Answer a request that is not whole. The connection ends with it."""
        if request is not None:
            request.keep_alive = False
        self.parser.discard_body = True
        route = routes.label(request)
        answers.refuse(self, request, refusal, model=NO_MODEL, route=route)

    def _defect(self, error: Exception) -> None:
        exchange = self.exchange
        self.plane.defect(error, exchange.id if exchange is not None else None)
        if exchange is not None:
            exchange.fail(Refusal(code="internal_error", message="The gateway failed on this request."))
        self.abort()
