"""A fast OpenAI-shaped upstream: `python -m benchmarks.upstream PORT`.

A fixed JSON answer, or, for `"stream":true`, a stream of as many events as `"n_events"` asks for (100), one write each,
`"interval_ms"` (0) apart.
Nothing is parsed that the byte path beside it does not need.
"""

import asyncio
import re
import sys
from collections.abc import Iterator
from typing import cast

import msgspec
import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_EVENTS = re.compile(rb'"n_events":(\d+)')
_INTERVAL = re.compile(rb'"interval_ms":(\d+)')


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(delta: dict[str, str], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return _chunk(b"data: " + msgspec.json.encode(body) + b"\n\n")


_MESSAGE = {"role": "assistant", "content": "Hello there, how can I help you today?"}
_BODY = msgspec.json.encode(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18},
    }
)
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = _event({"content": " token"}, None)
_END = _event({}, "stop") + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Upstream(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if not self._buffer and b'"stream":true' not in data and data.endswith(b"}") and data.count(b"POST ") == 1:
            self._transport.write(_JSON)  # one whole request: the upstream must not be what limits the load
            return
        self._buffer += data
        for body in self._requests():
            if b'"stream":true' in body:
                events, interval_ms = _number(_EVENTS, body, 100), _number(_INTERVAL, body, 0)
                stream = self._stream(events, interval_ms / 1000)
                self._task = asyncio.get_running_loop().create_task(stream)
            else:
                self._transport.write(_JSON)

    def _requests(self) -> Iterator[bytes]:
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._buffer, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < whole:
                return
            yield self._buffer[end + 4 : whole]
            self._buffer = self._buffer[whole:]

    async def _stream(self, events: int, interval_s: float) -> None:
        self._transport.write(_STREAM)
        for _ in range(events):
            self._transport.write(_EVENT)
            await asyncio.sleep(interval_s)  # one write, and one packet, for each event
        self._transport.write(_END)


def _number(pattern: re.Pattern[bytes], body: bytes, default: int) -> int:
    found = pattern.search(body)
    return int(found[1]) if found else default


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
