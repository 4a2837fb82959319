"""HTTP/1.1 for the fake engine: one protocol object per connection, one exchange per request.

Requests are answered in their order, so a client may pipeline; only one is in work at a time.
"""

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from email.utils import formatdate
from http import HTTPStatus
from typing import cast

import httptools

from pilothouse.testing.fake_engine.byte_shaper import ByteShaper
from pilothouse.testing.fake_engine.scripts import Script

_MAX_HEAD_BYTES = 64 * 1024  # as uvicorn's h11_max_incomplete_event_size
_MAX_BODY_BYTES = 64 * 1024 * 1024
_MAX_QUEUED = 16  # pipelined requests read ahead before reading pauses
_NO_BODY = frozenset({204, 304})
_LINGER_ZERO = struct.pack("ii", 1, 0)


class Request:
    """One request. Header names are lower case; `headers` keeps order and repetitions."""

    __slots__ = ("body", "headers", "http10", "keep_alive", "method", "path", "query")

    def __init__(self) -> None:
        self.method = ""
        self.path = ""
        self.query = ""
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        self.keep_alive = True
        self.http10 = False

    def header(self, name: str) -> str | None:
        """The first value of a header, by its lower-case name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None


class Exchange:
    """The response to one request, written by whoever handles it. It has exactly one end.

    `on_disconnect` is called when the client goes away, or is sent away by a script, before the end.
    """

    __slots__ = (
        "_chunked",
        "_connection",
        "_corked",
        "_head_only",
        "_shaper",
        "closed",
        "head_sent",
        "on_disconnect",
        "request",
    )

    def __init__(self, connection: "HttpConnection", request: Request) -> None:
        self._connection = connection
        self._shaper: ByteShaper | None = None
        self._chunked = False
        self._corked: list[bytes] | None = None
        self._head_only = request.method == "HEAD"
        self.request = request
        self.head_sent = False
        self.closed = False
        self.on_disconnect: Callable[[], None] | None = None

    def shape(self, script: Script) -> None:
        """Write the bytes as a script says. To be called before anything is sent."""
        if script.shapes_bytes:
            self._shaper = ByteShaper(
                script,
                write=self._connection.write,
                cut=lambda: self.cut(reset=script.reset),
                finished=self._connection.exchange_ended,
            )

    def respond(
        self, status: int, body: bytes, content_type: str = "application/json", headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """The whole response."""
        if self.closed:
            return
        headers = tuple(headers)
        lines = [] if status in _NO_BODY else [f"content-length: {len(body)}"]
        if body and not any(name.lower() == "content-type" for name, _ in headers):
            lines.append(f"content-type: {content_type}")
        head = self._head(status, lines, headers)
        self._send(head if self._head_only or status in _NO_BODY else head + body)
        self._end()

    def start_stream(self, content_type: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        """The head of a response whose length is not known: chunked, or until the end of an HTTP/1.0 connection."""
        if self.closed:
            return
        self._chunked = not self.request.http10
        lines = [f"content-type: {content_type}"]
        if self._chunked:
            lines.append("transfer-encoding: chunked")
        else:
            self.request.keep_alive = False
        self._send(self._head(200, lines, headers))

    def cork(self) -> None:
        """Keep what is sent from now on together, until `uncork` or the end: one system call instead of many."""
        self._corked = []

    def uncork(self) -> None:
        """Write what was kept, and what follows as it comes."""
        kept, self._corked = self._corked, None
        if kept and not self.closed:
            self._send(b"".join(kept))

    def frame(self, data: bytes) -> bytes:
        """A part of the body as it goes over the wire: one chunk."""
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def write_framed(self, data: bytes) -> None:
        """Bytes as they go over the wire: of `frame`, or wrong on purpose."""
        if not self.closed:
            self._send(data)

    def end(self) -> None:
        """The end of a stream."""
        if not self.closed:
            if self._chunked:
                self._send(b"0\r\n\r\n")
            self._end()

    def cut(self, *, reset: bool) -> None:
        """Close the connection here, with what was written so far; `reset` drops even that."""
        self.uncork()
        self._connection.close(reset=reset)
        self.disconnected()

    def disconnected(self) -> None:
        """The connection is gone."""
        if self._shaper is not None:
            self._shaper.stop()
        if self.closed:
            return
        self.closed = True
        if self.on_disconnect is not None:
            self.on_disconnect()

    def _head(self, status: int, lines: list[str], headers: Iterable[tuple[str, str]]) -> bytes:
        self.head_sent = True
        lines = [f"HTTP/1.1 {status} {_phrase(status)}", f"date: {_date()}", *lines]
        lines += [f"{name}: {value}" for name, value in headers]
        if self._connection.draining:
            self.request.keep_alive = False
        if not self.request.keep_alive:
            lines.append("connection: close")
        elif self.request.http10:
            lines.append("connection: keep-alive")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def _send(self, data: bytes) -> None:
        if self._corked is not None:
            self._corked.append(data)
        elif self._shaper is None:
            self._connection.write(data)
        else:
            self._shaper.write(data)

    def _end(self) -> None:
        self.uncork()
        if self.closed:  # cut by a script within the last bytes
            return
        self.closed = True
        if self._shaper is None:
            self._connection.exchange_ended()
        else:
            self._shaper.end()


class Connections:
    """The open connections of a server; `none_left` is set while there are none."""

    def __init__(self) -> None:
        self._open: set[HttpConnection] = set()
        self.none_left = asyncio.Event()
        self.none_left.set()

    def __iter__(self) -> "Iterator[HttpConnection]":
        return iter(tuple(self._open))

    def add(self, connection: "HttpConnection") -> None:
        """One more."""
        self._open.add(connection)
        self.none_left.clear()

    def discard(self, connection: "HttpConnection") -> None:
        """One less."""
        self._open.discard(connection)
        if not self._open:
            self.none_left.set()


class HttpConnection(asyncio.Protocol):
    """One client connection. `handle` is called with each exchange when its turn has come.

    A connection without a request for `idle_timeout_s` is closed, as uvicorn does.
    """

    def __init__(self, connections: Connections, handle: Callable[[Exchange], None], idle_timeout_s: float) -> None:
        self._connections = connections
        self._handle = handle
        self._idle_timeout_s = idle_timeout_s
        self._idle_timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request] = deque()
        self._current: Exchange | None = None
        self._incoming = Request()
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._in_body = False
        self._unparsed = 0  # bytes fed since a head began; the parser keeps an unfinished header to itself
        self._paused = False
        self._refused: int | None = None
        self.draining = False

    @property
    def busy(self) -> bool:
        """A request is in work."""
        return self._current is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: a client is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the client is gone; what was in work for it ends."""
        self._connections.discard(self)
        self._stop_idle_timer()
        self._transport = None
        self._queue.clear()
        current, self._current = self._current, None
        if current is not None:
            current.disconnected()

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes of one or more requests."""
        self._stop_idle_timer()
        if not self._in_body:
            self._unparsed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # the request itself was complete, and is answered without an upgrade
        except httptools.HttpParserError:
            self._refuse(400)
        if self._unparsed > _MAX_HEAD_BYTES:
            self._refuse(431)
        if self._refused is not None and self._current is None and not self._queue:
            self._answer_refused()

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        """A new request."""
        self._incoming = Request()
        self._body = []
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self._incoming.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line."""
        self._incoming.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """The head is there; a client that waits to be asked for the body is asked."""
        self._in_body = True
        self._unparsed = 0
        request = self._incoming
        request.method = self._parser.get_method().decode("latin-1")
        # After an upgrade that is not taken, the parser understands nothing more.
        request.keep_alive = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        request.http10 = self._parser.get_http_version() == "1.0"
        request.path, _, request.query = request.path.partition("?")
        expectation = request.header("expect")
        if expectation is not None and expectation.lower() == "100-continue" and not (self.busy or self._queue):
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        self._body_bytes += len(data)
        if self._body_bytes > _MAX_BODY_BYTES:
            self._refuse(413)
        elif self._refused is None:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """The request is whole: it is handled now, or when those before it are answered."""
        self._in_body = False
        if self._refused is not None:
            return
        request = self._incoming
        request.body = b"".join(self._body)
        if self._current is None and not self._queue:
            self._begin(request)
            return
        self._queue.append(request)
        if len(self._queue) >= _MAX_QUEUED and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    # For exchanges.

    def write(self, data: bytes) -> None:
        """Bytes to the client."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self, *, reset: bool = False) -> None:
        """Close after what was written, or at once with a TCP reset."""
        if self._transport is None:
            return
        if reset:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            self._transport.abort()
        else:
            self._transport.close()

    def exchange_ended(self) -> None:
        """The response in work is written: on to the next request, or close."""
        current, self._current = self._current, None
        if current is None:
            return
        if not current.request.keep_alive or self.draining:
            self.close()
        elif self._queue:
            # Not from within the handler that has just ended.
            asyncio.get_running_loop().call_soon(self._next)
        elif self._refused is not None:
            self._answer_refused()
        else:
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle_timeout_s, self.close)

    def drain(self) -> None:
        """Take no more requests; an idle connection closes now, a busy one after its response."""
        self.draining = True
        if self._current is None:
            self.close()

    def _stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _next(self) -> None:
        if self._transport is None or self._current is not None or not self._queue:
            return
        self._begin(self._queue.popleft())
        if self._paused and self._refused is None and len(self._queue) < _MAX_QUEUED:
            self._paused = False
            self._transport.resume_reading()

    def _begin(self, request: Request) -> None:
        self._current = Exchange(self, request)
        self._handle(self._current)

    def _refuse(self, status: int) -> None:
        if self._refused is None:
            self._refused = status
            if self._transport is not None and not self._paused:
                self._paused = True
                self._transport.pause_reading()

    def _answer_refused(self) -> None:
        status = self._refused or 400
        text = _phrase(status).encode()
        self.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
            % (status, text, len(text), text)
        )
        self.close()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


_date_cache = (0, "")


def _date() -> str:
    global _date_cache
    now = int(time.time())
    if _date_cache[0] != now:
        _date_cache = (now, formatdate(now, usegmt=True))
    return _date_cache[1]
