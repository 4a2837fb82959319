"""Many slow streams at once, as chat has them: what clients see of the gaps between tokens, and what a proxy spends."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import cast

import msgspec
import uvloop

from benchmarks import load
from benchmarks.gateway_worker import KEY
from benchmarks.peers import Running
from pilothouse.model.requests import Route

_EVENT = b"data: "
_START_PER_S = 500  # streams begin one after the other, so that tokens are spread over the interval


class Streams(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. Gaps between two events of a stream in seconds; CPU of the proxy for each event."""

    failed: int
    events_per_s: float
    gap_p50_s: float
    gap_p99_s: float
    cpu_us_per_event: float
    bytes_per_stream: float


class _Client(asyncio.Protocol):
    def __init__(self, request: bytes, done: "asyncio.Future[None]") -> None:
        self._request = request
        self.done = done
        self._last = 0.0
        self._measuring = False
        self.gaps: list[float] = []
        self.events = 0
        self.whole = False

    def measure(self, on: bool) -> None:
        self._measuring = on

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        count = data.count(_EVENT)
        if count:
            if self._measuring:
                self.events += count
                if self._last:
                    self.gaps.append(now - self._last)
            self._last = now
        if data.endswith(b"0\r\n\r\n"):
            self.whole = True
            if not self.done.done():
                self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


def run(proxy: Running, *, streams: int, interval_ms: int, seconds: float) -> Streams:
    """`streams` streams through a proxy, a token each `interval_ms`; measured for `seconds` when all have begun."""
    return uvloop.run(_run(proxy, streams, interval_ms, seconds))


async def _run(proxy: Running, streams: int, interval_ms: int, seconds: float) -> Streams:
    loop = asyncio.get_running_loop()
    begins_for = streams / _START_PER_S
    events = int((begins_for + seconds + 3) * 1000 / interval_ms)
    body = load.body(64, events=events, interval_ms=interval_ms).encode()
    request = (
        f"POST {Route.CHAT_COMPLETIONS} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    idle = sum(map(load.resident_bytes, proxy.pids))
    clients: list[_Client] = []
    ends: list[asyncio.Future[None]] = []
    transports = []
    for _ in range(streams):
        client = _Client(request, loop.create_future())
        transport, _ = await loop.create_connection(partial(_same, client), "127.0.0.1", proxy.port)
        clients.append(client)
        ends.append(client.done)
        transports.append(transport)
        await asyncio.sleep(1 / _START_PER_S)
    await asyncio.sleep(1)
    for client in clients:
        client.measure(True)
    before, began = load.cpu_seconds(proxy.pids), time.perf_counter()
    await asyncio.sleep(seconds)
    took, used = time.perf_counter() - began, load.cpu_seconds(proxy.pids) - before
    for client in clients:
        client.measure(False)
    busy = sum(map(load.resident_bytes, proxy.pids))
    await asyncio.wait(ends, timeout=30)
    for transport in transports:
        transport.close()
    gaps = sorted(gap for client in clients for gap in client.gaps)
    seen = sum(client.events for client in clients)
    return Streams(
        failed=sum(not client.whole or not client.events for client in clients),
        events_per_s=seen / took,
        gap_p50_s=_quantile(gaps, 0.5),
        gap_p99_s=_quantile(gaps, 0.99),
        cpu_us_per_event=used / max(1, seen) * 1e6,
        bytes_per_stream=(busy - idle) / streams,
    )


def _same(client: _Client) -> _Client:
    return client


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


async def _hold(port: int, count: int, request: bytes) -> list[asyncio.StreamWriter]:
    """Connections that have each had one answer and stay open."""
    writers = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        writers.append(writer)
    return writers


def idle_connections(proxy: Running, count: int) -> int:
    """Resident bytes of a proxy that holds `count` idle keep-alive connections."""

    async def hold() -> int:
        request = f"GET /v1/models HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {KEY}\r\n\r\n".encode()
        writers = await _hold(proxy.port, count, request)
        resident = sum(map(load.resident_bytes, proxy.pids))
        for writer in writers:
            writer.close()
        return resident

    return uvloop.run(hold())
