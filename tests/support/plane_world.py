"""A data plane without sockets and clocks: clients, engines and time are what a test makes of them, step by step.

The data plane's own classes run as they are. Only the transports, the making of connections, and the clock are ours.
"""

import re
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import httptools
import msgspec

from data_plane import PEPPER, chat, directory_of_tests, request, snapshot
from pilothouse.gateway import answers, client_connection, exchange, filtered_exchange
from pilothouse.gateway.client_connection import ClientConnection
from pilothouse.gateway.exchange import Exchange
from pilothouse.gateway.meters import Meters
from pilothouse.gateway.plane import DataPlane
from pilothouse.gateway.upstream import PendingConnection, Replica, UpstreamConnection, UpstreamOwner
from pilothouse.gateway.usage_request import UsageRequest
from pilothouse.model.filters import FilterSpec
from pilothouse.model.fleet import ModelView, ReplicaView
from pilothouse.model.ids import FleetName
from pilothouse.model.spec import GatewayLimits
from pilothouse.model.units import MILLISECOND, SECOND, DurationNs, MonotonicNs
from pilothouse.runtime.timer_wheel import TICK, TimerWheel
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import BoardWriter, board_path, read_boards

CHAT = "/v1/chat/completions"


class Transport:
    """Our end of a connection, as asyncio's behave: a protocol hears of its end a turn of the loop later."""

    def __init__(self, world: "PlaneWorld", protocol: Any, received: Callable[[bytes], None]) -> None:
        self._world = world
        self._protocol = protocol
        self._received = received
        self.reads = True
        self.slow = False  # the other end does not read
        self.closing = False
        self.eof_sent = False
        self.lost = False
        self._unsent = b""
        protocol.connection_made(self)

    # What the data plane calls.

    def set_write_buffer_limits(self, high: int) -> None:
        """Taken note of by `slow`."""

    def get_extra_info(self, name: str) -> object:
        return {"peername": ("127.0.0.1", 9)}.get(name)

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        assert not self.eof_sent, "asyncio raises on a write behind the end"
        assert data, "an empty write is a call for nothing"
        if self.lost:
            return
        if self.slow:
            self._unsent += data
        else:
            self._received(data)

    def writelines(self, pieces: tuple[bytes, ...]) -> None:
        self.write(b"".join(pieces))

    def write_eof(self) -> None:
        self.eof_sent = True

    def pause_reading(self) -> None:
        assert self.reads, "paused twice"
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            if not self.slow:
                self._lose_soon(None)

    def abort(self) -> None:
        self._unsent = b""
        self._lose_soon(None)

    # What the other end does.

    def deliver(self, data: bytes) -> None:
        """Bytes from the other end."""
        assert self.open
        self._protocol.data_received(data)

    def end(self, error: Exception | None = None) -> None:
        """The other end closes, or breaks the connection off."""
        if error is not None:
            self._unsent = b""
            self._lose_soon(error)
        elif not self.closing and not self._protocol.eof_received():
            self.close()

    def become_slow(self) -> None:
        """The other end stops reading, and our buffer fills."""
        self.slow = True
        self._protocol.pause_writing()

    def catch_up(self) -> None:
        """The other end has read everything."""
        self.slow = False
        data, self._unsent = self._unsent, b""
        if data:
            self._received(data)
        self._protocol.resume_writing()
        if self.closing:
            self._lose_soon(None)

    @property
    def open(self) -> bool:
        """Whether bytes of the other end are still heard."""
        return not self.closing and not self.lost

    def _lose_soon(self, error: Exception | None) -> None:
        self.closing = True
        if not self.lost:
            self.lost = True
            self._world.soon.append(lambda: self._protocol.connection_lost(error))


class Client:
    """Someone who asks, one request behind the other, and checks what comes back."""

    def __init__(self, world: "PlaneWorld") -> None:
        self._world = world
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""
        self.unsent = b""
        self.asked: list[str] = []  # the tags of its questions, in order
        self.answered: list[tuple[int, bytes]] = []
        self.connection = ClientConnection(world.plane)
        self.transport = Transport(world, self.connection, self._parser.feed_data)

    def ask(self, *, stream: bool) -> None:
        """Make up one more request."""
        self._world.tags += 1
        tag = f"question-{self._world.tags}"
        self.asked.append(tag)
        self.unsent += request(CHAT, chat(stream=stream, messages=[{"role": "user", "content": tag}]))

    def send(self, count: int) -> None:
        """Send so many bytes of what it has to say."""
        data, self.unsent = self.unsent[:count], self.unsent[count:]
        self.transport.deliver(data)

    @property
    def can_send(self) -> bool:
        return bool(self.unsent) and self.transport.open and self.transport.reads

    @property
    def exchange(self) -> Exchange | None:
        exchange = self.connection.exchange
        assert not isinstance(exchange, UsageRequest)
        return exchange

    # httptools' callbacks.

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        status, body, self._body = self._parser.get_status_code(), self._body, b""
        assert len(self.answered) < len(self.asked), "an answer that nobody asked for"
        self.answered.append((status, body))
        tags = set(re.findall(rb'"(question-\d+)"', body))
        assert tags <= {self.asked[len(self.answered) - 1].encode()}, "the answer is to this question and to no other"


class Engine:
    """The far end of a connection to a replica: it sees whole requests, one at a time, and answers byte by byte."""

    def __init__(self, connection: UpstreamConnection, world: "PlaneWorld") -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self.question = b""  # the tag of the one it has not answered yet
        self.unsent = b""
        self._then_closes = False
        self.connection = connection
        self.transport = Transport(world, connection, self._parser.feed_data)

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        assert not self.question, "a second request before the first is answered"
        assert not self.unsent, "a request in the middle of an answer"
        body, self._body = self._body, b""
        self.question = body.split(b'"content":"')[1].split(b'"')[0]

    def answer(self, data: bytes, *, then_close: bool = False) -> None:
        """Have an answer to the question."""
        self.unsent, self.question, self._then_closes = data, b"", then_close

    @property
    def can_send(self) -> bool:
        return bool(self.unsent) and self.transport.open and self.transport.reads

    def send(self, count: int) -> None:
        """Send so many bytes of the answer."""
        data, self.unsent = self.unsent[:count], self.unsent[count:]
        self.transport.deliver(data)
        if not self.unsent and self._then_closes and self.transport.open:
            self.transport.end()


class Connecting(PendingConnection):
    """A connection that is being made."""

    def __init__(self, replica: Replica, owner: UpstreamOwner) -> None:
        self.replica = replica
        self.owner = owner
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class WorldsReplica(Replica):
    """A replica whose connections are made when the test says so."""

    world: "PlaneWorld"

    def connect(self, owner: UpstreamOwner, timeout_s: float) -> PendingConnection:
        connecting = Connecting(self, owner)
        self.world.connecting.append(connecting)
        return connecting


class WorldsPlane(DataPlane):
    """The data plane with such replicas."""

    world: "PlaneWorld"

    def _make_replica(self, view: ReplicaView, model: ModelView) -> Replica:
        assert view.endpoint is not None
        meters = self.meters.replica(model.name, view.id)
        replica = WorldsReplica(
            view.id, view.alias, view.endpoint, meters=meters, wheel=self.wheel, loop=self.loop, spawn=self.spawn
        )
        replica.world = self.world
        self.world.replicas.append(replica)
        return replica


class PlaneWorld:
    """A data plane, its clients, its engines, and the time."""

    def __init__(
        self,
        limits: GatewayLimits | None = None,
        *,
        max_collected_bytes: int = 1 << 20,
        filters: tuple[FilterSpec, ...] = (),
    ) -> None:
        self._filters = filters
        self._directory = tempfile.TemporaryDirectory()
        self.now = 1000 * SECOND
        clock = SimpleNamespace(monotonic_ns=lambda: self.now)
        self._patches: list[Any] = [
            mock.patch.object(module, "time", clock)
            for module in (answers, client_connection, exchange, filtered_exchange)
        ]
        self._patches.append(mock.patch.object(exchange, "MAX_COLLECTED_BYTES", max_collected_bytes))
        for patch in self._patches:
            patch.start()
        self.tags = 0
        self.soon: deque[Callable[[], None]] = deque()
        self.clients: list[Client] = []
        self.engines: list[Engine] = []
        self.connecting: list[Connecting] = []
        self.replicas: list[Replica] = []
        self.defects: list[Exception] = []
        self._board = BoardWriter(board_path(Path(self._directory.name), 0), worker=0)
        self.wheel = TimerWheel(MonotonicNs(self.now))
        self.plane = WorldsPlane(
            fleet=FleetName("tests"),
            limits=limits or GatewayLimits(),
            pepper=PEPPER,
            meters=Meters(self._board),
            wheel=self.wheel,
            loop=cast("Any", None),  # connections are made by the test, and nothing else needs one
            seed=7,
        )
        self.plane.world = self
        self.plane._id_prefix = "req_0123456789ab"  # choices are drawn from ids, and are to be the same in every run
        self.plane.defect = lambda error, request: self.defects.append(error)  # type: ignore[method-assign]
        self.plane.callers.use([directory_of_tests()])
        self._version = 0
        self.set_replicas(2)

    def set_replicas(self, count: int) -> None:
        """A new snapshot, with so many replicas."""
        self._version += 1
        fleet = snapshot(range(40_001, 40_001 + count), self._version)
        self.plane.apply(msgspec.structs.replace(fleet, filters=self._filters))

    def connect_client(self) -> None:
        """A client connects."""
        self.clients.append(Client(self))

    def turn_loop(self) -> None:
        """What the event loop owes is done."""
        while self.soon:
            self.soon.popleft()()
        self.clients = [each for each in self.clients if not each.connection.closed]
        self.engines = [each for each in self.engines if not each.transport.lost]

    def connected(self, connecting: Connecting) -> None:
        """A connection to a replica is made."""
        self.connecting.remove(connecting)
        connection = UpstreamConnection(connecting.replica)
        self.engines.append(Engine(connection, self))
        connecting.owner.on_connected(connection)

    def refused(self, connecting: Connecting) -> None:
        """A replica refuses."""
        self.connecting.remove(connecting)
        connecting.owner.on_connect_failed("refused")

    def pass_time(self, duration: DurationNs) -> None:
        """Time passes, tick by tick where something may be due, and the wheel turns."""
        self.now += duration
        self.wheel.turn(MonotonicNs(self.now))
        self.now += 3 * TICK  # a time-out is up to three ticks late
        self.wheel.turn(MonotonicNs(self.now))

    def pass_moment(self) -> None:
        """Too short a time for anything to be due."""
        self.now += MILLISECOND

    @property
    def waiting(self) -> list[Connecting]:
        """The connections that are being made and still wanted."""
        return [each for each in self.connecting if not each.cancelled]

    def state(self) -> tuple[object, ...]:
        """Changes when anything has happened."""
        clients = [(len(each.answered), len(each.unsent), each.transport.lost) for each in self.clients]
        engines = [(len(each.unsent), each.question, each.transport.lost) for each in self.engines]
        return clients, engines, len(self.soon), len(self.waiting)

    def count(self, spec: catalogue.MetricSpec, *reasons: str) -> float:
        """The sum of a counter or gauge over its labels, or over those with such a reason."""
        samples = read_boards(Path(self._directory.name)).samples
        return sum(
            sample.value
            for sample in samples
            if sample.name == spec.name and (not reasons or dict(sample.labels)["reason"] in reasons)
        )

    def close(self) -> None:
        """Give everything back."""
        self._board.close()
        for patch in self._patches:
            patch.stop()
        self._directory.cleanup()
