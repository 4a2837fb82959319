"""The engine's side of the byte path: a replica, its pool of connections, and one connection."""

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from pilothouse.config.addresses import leads_to_metadata
from pilothouse.gateway.heads import EngineHead
from pilothouse.gateway.meters import ReplicaMeters
from pilothouse.model.fleet import Endpoint
from pilothouse.model.ids import ReplicaId
from pilothouse.model.requests import Route
from pilothouse.model.units import DurationNs, MonotonicNs
from pilothouse.runtime.timer_wheel import TimerWheel
from pilothouse.wire.http1 import ResponseError, ResponseParser

if TYPE_CHECKING:
    from collections.abc import Coroutine

MAX_IDLE_CONNECTIONS = 256
"""Per replica. Above the slots of any engine configuration in use; more would only hold memory."""


class UpstreamOwner(Protocol):
    """Who a connection works for: an exchange."""

    def on_connected(self, connection: "UpstreamConnection") -> None:
        """The connection that was asked for is there."""

    def on_connect_failed(self, reason: str) -> None:
        """It could not be had."""

    def on_answer(self, body: bytes) -> None:
        """A whole response came in one read, with the head of the one before it: status and head are known."""

    def on_upstream_data(self) -> None:
        """The response parser was fed."""

    def on_defect(self, error: Exception) -> None:
        """One of these calls raised."""

    def on_upstream_lost(self, reason: str) -> None:
        """The connection closed before the response was complete."""

    def on_upstream_broken(self, reason: str) -> None:
        """The engine does not speak HTTP. The connection has been closed."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to a replica. It works for one `owner` at a time, who writes to `transport` itself."""

    __slots__ = ("_head", "_paused", "connected", "idle_until", "owner", "parser", "replica", "served", "transport")

    def __init__(self, replica: "Replica") -> None:
        self.replica = replica
        self.parser = ResponseParser()
        self.owner: UpstreamOwner | None = None
        self.served = 0
        self.connected = False
        self._head = EngineHead([])
        self._paused = False
        self.idle_until = 0  # on the clock of the timer wheel, in nanoseconds
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)  # until connection_made

    def head(self) -> EngineHead:
        """The head of the response under way, which is whole."""
        headers = self.parser.headers
        if self._head.headers is not headers and self._head.headers != headers:
            self._head = EngineHead(headers)
        return self._head

    def pause(self) -> None:
        """Read no more: the engine's writes will block, then its generation."""
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def release(self) -> None:
        """The response is complete: keep the connection for the next exchange, if both sides want that."""
        parser = self.parser
        self.owner = None
        self.served += 1
        self.replica.silences = 0
        if not parser.keep_alive or parser.surplus or self.transport.is_closing():
            self.abort()
            return
        if self._paused:
            self.resume()
        head = self._head if self._head.headers is parser.headers else self.head()
        parser.reset()
        self.replica.keep(self, head.keep_alive)

    def abort(self) -> None:
        """Close now. The engine sees the connection go and stops generating; the owner hears nothing."""
        self.owner = None
        self.transport.abort()

    def discard(self) -> None:
        """Close a connection that may have been made at the very moment nobody wanted it any more."""
        if self.connected:
            self.transport.abort()

    # asyncio's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self.transport = cast("asyncio.Transport", transport)
        self.connected = True
        self.replica.meters.connections.add(1)

    def data_received(self, data: bytes) -> None:
        """Bytes from the engine."""
        owner = self.owner
        if owner is None:
            self.abort()  # nobody asked for anything: the connection is out of step
            return
        try:
            body = self.parser.again(data)
            if body is not None:
                owner.on_answer(body)
            else:
                self.parser.feed(data)
                owner.on_upstream_data()
        except ResponseError as error:
            self.abort()
            owner.on_upstream_broken(str(error))
        except Exception as error:
            owner.on_defect(error)

    def eof_received(self) -> bool:
        """The engine will send no more; `connection_lost` follows."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self.replica.meters.connections.add(-1)
        self.replica.forget(self)
        owner = self.owner
        if owner is None:
            return
        self.owner = None
        if exc is None and self.parser.close():
            try:
                owner.on_upstream_data()
            except Exception as error:
                owner.on_defect(error)
        else:
            owner.on_upstream_lost(str(exc) if exc is not None else "connection closed")


class PendingConnection:
    """A connection being made for an exchange, which may lose interest."""

    __slots__ = ("_task",)

    def __init__(self, task: "asyncio.Task[None]") -> None:
        self._task = task

    def cancel(self) -> None:
        """The exchange hears nothing; a connection that is made all the same is closed."""
        self._task.cancel()


class Replica:
    """A replica as a target of traffic: its endpoint, its idle connections, and what is in flight on it from here."""

    __slots__ = (
        "_elsewhere_tokens",
        "_idle",
        "_loop",
        "_shown_requests",
        "_shown_tokens",
        "_spawn",
        "_ssl",
        "_wheel",
        "alias",
        "endpoint",
        "heads",
        "id",
        "in_flight_requests",
        "load_tokens",
        "meters",
        "retired",
        "silences",
        "suspected_until",
    )

    def __init__(
        self,
        id_: ReplicaId,
        alias: str,
        endpoint: Endpoint,
        *,
        meters: ReplicaMeters,
        wheel: TimerWheel,
        loop: asyncio.AbstractEventLoop,
        spawn: Callable[["Coroutine[None, None, None]"], "asyncio.Task[None]"],
    ) -> None:
        self.id = id_
        self.alias = alias
        self.endpoint = endpoint
        self.meters = meters
        self.in_flight_requests = 0
        self.load_tokens = 0  # in flight from here, and from the other workers of this host as last heard
        self._elsewhere_tokens = 0
        self.silences = 0  # requests in a row that it let time out
        self.suspected_until = MonotonicNs(0)
        self.retired = False
        self._wheel = wheel
        self._loop = loop
        self._spawn = spawn
        self._idle: list[UpstreamConnection] = []
        self._shown_requests = 0
        self._shown_tokens = 0
        self._ssl = ssl.create_default_context() if endpoint.tls else None
        self.heads = {route: self._request_head(route) for route in Route}

    def _request_head(self, route: Route) -> bytes:
        """The part of every request's head that is the same: to be followed by headers and an empty line."""
        endpoint = self.endpoint
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        authorization = f"authorization: {endpoint.authorization}\r\n" if endpoint.authorization else ""
        head = f"POST {endpoint.base_path}{route} HTTP/1.1\r\nhost: {host}:{endpoint.port}\r\n{authorization}"
        return head.encode("latin-1")

    def release(self, tokens: int) -> None:
        """A turn of `tokens`, which was added to what is in flight when it was sent here, is over."""
        self.load_tokens -= tokens
        self.in_flight_requests -= 1
        if self.retired:
            self.show_load()  # no tick does it any more

    @property
    def in_flight_tokens(self) -> int:
        """What is in flight from here."""
        return self.load_tokens - self._elsewhere_tokens

    def hear_load(self, elsewhere_tokens: int) -> None:
        """The other workers of this host have so much in flight."""
        self.load_tokens += elsewhere_tokens - self._elsewhere_tokens
        self._elsewhere_tokens = elsewhere_tokens

    def show_load(self) -> None:
        """Bring the gauges up to date. Nobody decides by them, so once a tick will do.

        By differences, since a replica that moved to another endpoint shares them with the one it was.
        """
        tokens, requests = self.in_flight_tokens, self.in_flight_requests
        self.meters.in_flight_tokens.add(tokens - self._shown_tokens)
        self.meters.in_flight_requests.add(requests - self._shown_requests)
        self._shown_tokens, self._shown_requests = tokens, requests

    def take(self) -> UpstreamConnection | None:
        """An idle connection, the one used last (it is the least likely to be closed by the other side)."""
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_until > self._wheel.now and not connection.transport.is_closing():
                return connection
            connection.abort()
        return None

    def keep(self, connection: UpstreamConnection, keep_alive: DurationNs) -> None:
        """Put an idle connection into the pool."""
        if self.retired or keep_alive <= 0 or len(self._idle) >= MAX_IDLE_CONNECTIONS:
            connection.abort()
            return
        connection.idle_until = self._wheel.now + keep_alive
        self._idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """A connection closed; if it was idle, it is no longer."""
        if connection.owner is None and connection in self._idle:
            self._idle.remove(connection)

    def connect(self, owner: UpstreamOwner, timeout_s: float) -> PendingConnection:
        """Make a connection for `owner`."""
        return PendingConnection(self._spawn(self._connect(owner, timeout_s)))

    async def _connect(self, owner: UpstreamOwner, timeout_s: float) -> None:
        connection = UpstreamConnection(self)
        endpoint = self.endpoint
        try:
            async with asyncio.timeout(timeout_s):
                await self._loop.create_connection(
                    lambda: connection,
                    endpoint.host,
                    endpoint.port,
                    ssl=self._ssl,
                    server_hostname=endpoint.host if endpoint.tls else None,
                )
        except asyncio.CancelledError:
            connection.discard()
            raise
        except TimeoutError:
            connection.discard()
            owner.on_connect_failed(f"no connection within {timeout_s:g} s")
        except OSError as error:
            owner.on_connect_failed(error.strerror or str(error))
        else:
            address = str(connection.transport.get_extra_info("peername", ("",))[0])
            if leads_to_metadata(address):
                # The fleet file was checked for this by name; what the name leads to is known only here.
                connection.discard()
                owner.on_connect_failed(f"{endpoint.host} leads to {address}, a link-local address")
            else:
                owner.on_connected(connection)

    def retire(self) -> None:
        """Take no connection back any more and close the idle ones. Exchanges in flight go on."""
        self.retired = True
        self.show_load()
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
