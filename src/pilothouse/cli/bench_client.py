"""One client connection of the load generator: asyncio on the socket, httptools on the bytes, and nothing in between.

A general HTTP client costs several times what the gateway does for a request, and would measure itself.
"""

import asyncio
import ssl
import time
from typing import cast
from urllib.parse import urlsplit

import httptools
import msgspec

from pilothouse.cli.api_errors import error_object
from pilothouse.cli.target import Target
from pilothouse.wire.sse import EventCutter, split

PATH = "/v1/chat/completions"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Instants in seconds of one monotonic clock.

    `tokens_at` are the instants at which a piece of the answer came (empty without streaming), `output_tokens` is
    what the server counted, else the number of pieces. `error` is a code, `None` if all went well.
    """

    started: float
    ended: float
    tokens_at: tuple[float, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


_decode_event = msgspec.json.Decoder(_Event).decode


class BenchClient:
    """Sends one request at a time over one connection, which it opens again when it was closed."""

    def __init__(self, target: Target, *, timeout_s: float) -> None:
        parts = urlsplit(target.url)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._timeout_s = timeout_s
        headers = {"host": parts.netloc, "content-type": "application/json", **target.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._head = f"POST {parts.path}{PATH} HTTP/1.1\r\n{lines}content-length: ".encode()
        self._connection: _Connection | None = None

    async def send(self, body: bytes) -> Outcome:
        """Send the body and read the answer to its end. What goes wrong is in the outcome."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._connected()
                answer = connection.exchange(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
                await answer.complete
        except TimeoutError:
            self.close()
            return Outcome(started=started, ended=time.perf_counter(), error="timeout")
        except OSError:
            return Outcome(started=started, ended=time.perf_counter(), error="connect_failed")
        return answer.outcome(started, time.perf_counter())

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connected(self) -> "_Connection":
        if self._connection is None or self._connection.closed:
            loop = asyncio.get_running_loop()
            _, self._connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        return self._connection


class _Answer:
    """What came back so far."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.complete: asyncio.Future[None] = loop.create_future()
        self.status = 0
        self.error: str | None = None
        self._streamed = False
        self._body = b""
        self._cutter = EventCutter()
        self._tokens_at: list[float] = []
        self._usage: _Usage | None = None

    def expect_events(self) -> None:
        self._streamed = True

    def feed(self, data: bytes) -> None:
        if not self._streamed or self.status != 200:
            self._body += data
            return
        now = time.perf_counter()
        for event in split(self._cutter.feed(data)):
            self._read_event(event, now)

    def _read_event(self, event: bytes, now: float) -> None:
        if not event.startswith(b"data:"):
            return
        data = event[5:].strip()
        if data == b"[DONE]":
            return
        if data.startswith(b'{"error"'):
            failed = error_object(data)
            self.error = failed.label if failed else "error"
            return
        decoded = _decode_event(data)
        if decoded.usage is not None:
            self._usage = decoded.usage
        if any(each.delta and (each.delta.content or each.delta.reasoning_content) for each in decoded.choices):
            self._tokens_at.append(now)

    def outcome(self, started: float, ended: float) -> Outcome:
        error = self.error
        if error is None and self.status != 200:
            refused = error_object(self._body, self.status)
            error = refused.label if refused else f"http_{self.status}"
        usage = self._usage
        if error is None and not self._streamed:
            usage = _decode_event(self._body).usage
        return Outcome(
            started=started,
            ended=ended,
            tokens_at=tuple(self._tokens_at),
            input_tokens=usage.prompt_tokens if usage else 0,
            output_tokens=usage.completion_tokens if usage else len(self._tokens_at),
            error=error,
        )


class _Connection(asyncio.Protocol):
    """Feeds what arrives to the parser, and what the parser finds to the answer."""

    def __init__(self) -> None:
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: _Answer | None = None

    def exchange(self, request: bytes) -> _Answer:
        """Send a request; the answer is filled as it comes."""
        assert self._transport is not None
        self._answer = _Answer(asyncio.get_running_loop())
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without inheriting from it

    def data_received(self, data: bytes) -> None:
        try:
            if self._parser is not None:
                self._parser.feed_data(data)
        except (httptools.HttpParserError, msgspec.MsgspecError):
            self._end("bad_answer")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._end("connection_lost")

    def _end(self, error: str | None) -> None:
        if self._answer is not None and not self._answer.complete.done():
            self._answer.error = self._answer.error or error
            self._answer.complete.set_result(None)

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type" and value.startswith(b"text/event-stream") and self._answer:
            self._answer.expect_events()

    def on_headers_complete(self) -> None:
        if self._answer is not None and self._parser is not None:
            self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self._answer is not None:
            self._answer.feed(body)

    def on_message_complete(self) -> None:
        if self._parser is not None and not self._parser.should_keep_alive():
            self.close()
        self._end(None)
