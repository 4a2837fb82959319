"""A data plane in the test's own event loop, on loopback, in front of engines that the test brings."""

import asyncio
import contextlib
import hmac
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.gateway.access_log import AccessLog
from pilothouse.gateway.client_connection import ClientConnection
from pilothouse.gateway.cors import CrossOrigin
from pilothouse.gateway.meters import Meters
from pilothouse.gateway.plane import DataPlane
from pilothouse.gateway.turn_log import TurnLog
from pilothouse.gateway.turns import Turns
from pilothouse.model.fleet import (
    DeploymentView,
    Endpoint,
    FleetSnapshot,
    ModelView,
    ReplicaState,
    ReplicaView,
)
from pilothouse.model.ids import DeploymentName, FleetName, KeyId, ModelName, OrganisationId, ReplicaId, TenantId
from pilothouse.model.ledger import LedgerRow
from pilothouse.model.requests import Route
from pilothouse.model.spec import GatewayLimits
from pilothouse.model.tenants import NO_LIMITS, Key, Limits, Organisation, Tenant, TenantDirectory
from pilothouse.model.units import SECOND, MonotonicNs
from pilothouse.policy.limits.authority import LeaseAuthority
from pilothouse.policy.limits.lease import LeaseSettings
from pilothouse.policy.limits.lease_book import LeaseBook
from pilothouse.runtime.timer_wheel import TimerWheel
from pilothouse.store.lease_exchange import LeaseExchange, LocalAuthority
from pilothouse.store.spool import SpoolReader, SpoolWriter
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import BoardWriter, board_path, read_boards
from pilothouse.telemetry.traces import Traces

KEY = "ph_a-key-of-the-tests"
PEPPER = b"pepper" * 8
MODEL = "fake-model"
ENGINE_KEY = "engine-key"


def snapshot(ports: Sequence[int], version: int = 1, **deployment: Any) -> FleetSnapshot:
    """A fleet of one model with a replica on each of `ports`; `deployment` are fields of its deployment's view."""
    replicas = tuple(
        ReplicaView(
            id=ReplicaId(f"fake-{index}"),
            alias=f"r{index}",
            deployment=DeploymentName("fake"),
            state=ReplicaState.READY,
            endpoint=Endpoint(host="127.0.0.1", port=port, authorization=f"Bearer {ENGINE_KEY}"),
        )
        for index, port in enumerate(ports)
    )
    fields: dict[str, Any] = {
        "name": DeploymentName("fake"),
        "engine": "fake",
        "routes": tuple(Route),
        "reserved_headers": ("x-vllm-priority",),
        "reserved_fields": ("priority", "cache_salt"),
        "replicas": replicas,
        **deployment,
    }
    model = ModelView(name=ModelName(MODEL), created=1_700_000_000, deployments=(DeploymentView(**fields),))
    return FleetSnapshot(fleet=FleetName("tests"), version=version, models=(model,))


def directory_of_tests(
    limits: Limits = NO_LIMITS,
    *,
    key: Mapping[str, Any] | None = None,
    tenant: Mapping[str, Any] | None = None,
    version: int = 1,
) -> TenantDirectory:
    """One organisation with one tenant, whose key is `KEY`; `limits` are the key's own."""
    acme = OrganisationId("acme")
    web = TenantId("tests")
    digest = hmac.digest(PEPPER, KEY.encode(), "sha256")
    return TenantDirectory(
        version=version,
        organisations=(Organisation(id=acme, name="Acme"),),
        tenants=(Tenant(id=web, organisation=acme, name="Tests", **(tenant or {})),),
        keys=(Key(id=KeyId("key_1"), tenant=web, digest=digest, limits=limits, **(key or {})),),
    )


class Answer(msgspec.Struct, frozen=True):
    """A response as it came over the wire. `headers` are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        code = self.json()["error"]["code"]
        assert isinstance(code, str)
        return code


class RunningPlane:
    """What a test does with the data plane."""

    def __init__(self, plane: DataPlane, port: int, board_dir: Path) -> None:
        self.plane = plane
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._board_dir = board_dir
        self._wires: list[Wire] = []

    def close_wires(self) -> None:
        """Close every connection that a test left open."""
        for wire in self._wires:
            wire.abort()

    def count(self, spec: catalogue.MetricSpec, **labels: str) -> float:
        """A counter or gauge of the board, or how often a histogram observed."""
        total = 0.0
        for sample in read_boards(self._board_dir).samples:
            if sample.name == spec.name and labels.items() <= dict(sample.labels).items():
                total += sum(sample.buckets) if sample.buckets else sample.value
        return total

    def series(self) -> int:
        """How many series the board has."""
        return len(read_boards(self._board_dir).samples)

    def ended(self, reason: str) -> float:
        """Requests that ended for a reason."""
        return self.count(catalogue.REQUESTS, reason=reason)

    def in_flight(self) -> tuple[int, int]:
        """Requests and tokens: both are zero when all is given back."""
        replicas = self.plane.table.replicas.values()
        return sum(each.in_flight_requests for each in replicas), sum(each.in_flight_tokens for each in replicas)

    def turn(self, seconds: float) -> None:
        """Let the wheel believe that it is so much later than it last was."""
        self.plane.wheel.turn(MonotonicNs(self.plane.wheel.now + round(seconds * SECOND)))

    def turns(self) -> list[LedgerRow]:
        """What is on record."""
        return [row for each in SpoolReader(self._board_dir / "spool").segments() for row in each.read(1000)]

    async def send(self, data: bytes) -> "Wire":
        """A raw connection on which `data` has been sent."""
        self._wires.append(await connect(self.port, data))
        return self._wires[-1]

    async def ask(
        self,
        path: str,
        body: bytes | Mapping[str, object] = b"",
        *,
        method: str = "POST",
        key: str | None = KEY,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own."""
        wire = await self.send(request(path, body, method=method, key=key, headers=headers))
        try:
            return await wire.answer(head_only=method == "HEAD")
        finally:
            wire.close()


class Wire:
    """A client's connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> tuple[int, dict[str, str]]:
        """The next response's head."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value for name, value in pairs}

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body; empty at its end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def answer(self, *, head_only: bool = False) -> Answer:
        """The next response, whole."""
        status, headers = await self.head()
        if status == 100:
            status, headers = await self.head()
        if head_only:
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            pieces = []
            while piece := await self.chunk():
                pieces.append(piece)
            body = b"".join(pieces)
        elif "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = await self.reader.read()
        return Answer(status, headers, body)

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()


async def connect(port: int, data: bytes) -> Wire:
    """A raw connection to the loopback address, on which `data` has been sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return Wire(reader, writer)


def request(
    path: str,
    body: bytes | Mapping[str, object] = b"",
    *,
    method: str = "POST",
    key: str | None = KEY,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A request as bytes."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [f"{method} {path} HTTP/1.1", "Host: tests"]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    if method == "POST":
        lines.append(f"Content-Length: {len(data)}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def chat(*, stream: bool = False, **fields: object) -> dict[str, object]:
    """The body of a small chat request."""
    return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": stream, **fields}


@contextlib.asynccontextmanager
async def data_plane(
    fleet: FleetSnapshot,
    board_dir: Path,
    limits: GatewayLimits | None = None,
    *,
    origins: tuple[str, ...] = (),
    access_log: AccessLog | None = None,
    traces: Traces | None = None,
    tenants: TenantDirectory | None = None,
) -> AsyncIterator[RunningPlane]:
    """Serve `fleet` to `tenants` on a free port. At the end nothing may be in flight and no task left."""
    loop = asyncio.get_running_loop()
    board = BoardWriter(board_path(board_dir, 0), worker=0)
    plane = DataPlane(
        fleet=fleet.fleet,
        limits=limits or GatewayLimits(),
        pepper=PEPPER,
        meters=Meters(board),
        wheel=TimerWheel(MonotonicNs(time.monotonic_ns())),
        loop=loop,
        seed=7,
        cors=CrossOrigin(origins),
        access_log=access_log,
        traces=traces,
    )
    plane.apply(fleet)
    plane.callers.use([tenants or directory_of_tests()])
    book = LeaseBook("tests", LeaseSettings())
    leases = LeaseExchange(
        book, LocalAuthority(LeaseAuthority("life", 0, LeaseSettings().term // 1000)), interval_s=0.01
    )
    turn_log = TurnLog(SpoolWriter(board_dir / "spool", f"tests-{os.urandom(4).hex()}"))
    plane.turns = Turns(plane.callers, plane.meters, book, leases.ask, turn_log)
    plane.turns.use_prices(fleet)
    talking = loop.create_task(leases.run())
    server = await loop.create_server(lambda: ClientConnection(plane), "127.0.0.1", 0)
    running = RunningPlane(plane, server.sockets[0].getsockname()[1], board_dir)
    try:
        yield running
        await settled(running)
    finally:
        talking.cancel()
        turn_log.close()
        running.close_wires()
        server.close()
        for connection in list(plane.connections):
            connection.abort()
        for replica in plane.table.replicas.values():
            replica.retire()
        await asyncio.sleep(0.01)
        board.close()


async def settled(running: RunningPlane, timeout_s: float = 5.0) -> None:
    """Wait until nothing is in flight; fail if something stays."""
    give_up = time.monotonic() + timeout_s
    while running.in_flight() != (0, 0):
        assert time.monotonic() < give_up, f"still in flight: {running.in_flight()}"
        await asyncio.sleep(0.005)
