import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from pilothouse.config.paths import FleetPaths
from pilothouse.controller import Controller
from pilothouse.controller import replica as replica_module
from pilothouse.model.control import ControlMessage, SnapshotPublished, WorkerJoined
from pilothouse.model.fleet import FleetSnapshot, ReplicaState
from pilothouse.model.ids import DeploymentName, FleetName, ModelName, ReplicaId
from pilothouse.model.spec import (
    ControllerSpec,
    DeploymentSpec,
    EngineSpec,
    FleetSpec,
    GatewayLimits,
    GatewaySpec,
    ListenAddress,
    ModelSpec,
    UpstreamSpec,
)
from pilothouse.model.status import ReplicaStatus
from pilothouse.model.units import MILLISECOND, DurationNs
from pilothouse.placement.local import end_recorded_processes
from pilothouse.placement.weights import Silent
from pilothouse.policy.replica_lifecycle import LifecycleSettings, ReplicaLifecycle
from pilothouse.store.ledger import Ledger
from pilothouse.store.tenants import TenantStore
from pilothouse.testing.processes import wait_until
from pilothouse.wire import control_channel

START_TIMEOUT_S = 15.0

MakeFleet = Callable[..., FleetSpec]


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[FleetPaths]:
    """Directories of a fleet; whatever its records name is ended after the test."""
    paths = FleetPaths(
        state_dir=tmp_path / "state",
        runtime_dir=tmp_path / "run",
        cache_dir=tmp_path / "cache",
        config_dir=tmp_path / "config",
    )
    paths.create()
    yield paths
    end_recorded_processes(paths, grace_s=0)


@pytest.fixture
def fleet() -> MakeFleet:
    """A fleet of one model on the fake engine: `fleet(replicas=2, args={...})`."""

    def make(
        replicas: int = 1, *, args: Mapping[str, Any] | None = None, drain_timeout_s: float = 5, name: str = "a"
    ) -> FleetSpec:
        engine = EngineSpec(name="fake", args=dict(args or {}))
        return _fleet_of(_deployment(engine, replicas, name=name), drain_timeout_s=drain_timeout_s)

    return make


def _deployment(
    engine: EngineSpec, replicas: int, *, name: str = "a", model: str = "m", upstream: UpstreamSpec | None = None
) -> DeploymentSpec:
    return DeploymentSpec(
        name=DeploymentName(name), model=ModelName(model), engine=engine, replicas=replicas, upstream=upstream
    )


def _fleet_of(*deployments: DeploymentSpec, drain_timeout_s: float = 5) -> FleetSpec:
    by_model: dict[ModelName, list[DeploymentSpec]] = {}
    for each in deployments:
        by_model.setdefault(each.model, []).append(each)
    return FleetSpec(
        name=FleetName("test"),
        models=tuple(ModelSpec(name=name, deployments=tuple(found)) for name, found in by_model.items()),
        gateway=GatewaySpec(
            listen=ListenAddress(host="127.0.0.1", port=8080), limits=GatewayLimits(drain_timeout_s=drain_timeout_s)
        ),
        controller=ControllerSpec(listen=ListenAddress(host="127.0.0.1", port=8081)),
    )


class Fleet:
    """A controller under test, and the fleet file it would read next."""

    def __init__(self, spec: FleetSpec, paths: FleetPaths) -> None:
        self.file = spec
        self.paths = paths
        self.controller = Controller(
            spec,
            paths,
            env=dict(os.environ),
            load_spec=lambda: self.file,
            tenants=TenantStore(paths.database, paths.pepper),
            ledger=Ledger(paths.database),
            progress=Silent(),
        )

    def replicas(self) -> dict[str, ReplicaStatus]:
        return {replica.id: replica for replica in self.controller.status().replicas}

    def pids(self) -> dict[str, int]:
        return {name: replica.pid for name, replica in self.replicas().items() if replica.pid is not None}

    def states(self) -> dict[str, ReplicaState]:
        return {name: replica.state for name, replica in self.replicas().items()}

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            await wait_until(condition, what, timeout_s=START_TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; replicas: {self.replicas()}") from None

    async def until_ready(self) -> None:
        """Every wanted replica is Ready, and the workers have been told."""

        def all_told() -> bool:
            return ready_in(msgspec.json.decode(self.paths.snapshot.read_bytes(), type=FleetSnapshot)) == {
                name for name, state in self.states().items() if state is ReplicaState.READY
            }

        await self.until(lambda: self.controller.status().ready and all_told(), "every wanted replica is Ready")


StartFleet = Callable[[FleetSpec], "contextlib.AbstractAsyncContextManager[Fleet]"]


@pytest.fixture
def running(paths: FleetPaths) -> StartFleet:
    """A started controller, which is closed (its replicas live on) when the block is left."""

    @contextlib.asynccontextmanager
    async def start(spec: FleetSpec) -> AsyncIterator[Fleet]:
        fleet = Fleet(spec, paths)
        await fleet.controller.start()
        try:
            yield fleet
        finally:
            await fleet.controller.close()

    return start


class Listener:
    """A worker's end of the control socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.snapshots: list[FleetSnapshot] = []
        self._reader = reader
        self._writer = writer
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def latest(self) -> FleetSnapshot:
        return self.snapshots[-1]

    @property
    def ended(self) -> bool:
        return self._reading.done()

    def ready(self) -> set[ReplicaId]:
        return ready_in(self.latest) if self.snapshots else set()

    def send(self, message: ControlMessage) -> None:
        self._writer.write(control_channel.encode(message))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def close(self) -> None:
        self._writer.close()
        await self._reading

    async def _read(self) -> None:
        decoder = control_channel.Decoder()
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(65536):
                for message in decoder.feed(data):
                    assert isinstance(message, SnapshotPublished)
                    self.snapshots.append(message.snapshot)


def ready_in(snapshot: FleetSnapshot) -> set[ReplicaId]:
    return {
        replica.id
        for model in snapshot.models
        for each in model.deployments
        for replica in each.replicas
        if replica.state is ReplicaState.READY
    }


Listen = Callable[..., "contextlib.AbstractAsyncContextManager[Listener]"]


@pytest_asyncio.fixture
async def listening(paths: FleetPaths) -> Listen:
    """Joins the control socket as a worker does."""

    @contextlib.asynccontextmanager
    async def listen(index: int | None = 0) -> AsyncIterator[Listener]:
        reader, writer = await asyncio.open_unix_connection(str(paths.control_socket))
        listener = Listener(reader, writer)
        if index is not None:
            listener.send(WorkerJoined(index=index, pid=os.getpid()))
        try:
            yield listener
        finally:
            await listener.close()

    return listen


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other quickly, and patience with what does not end is short."""
    quick = LifecycleSettings(backoff_first=DurationNs(10 * MILLISECOND), kill_timeout=DurationNs(100 * MILLISECOND))
    monkeypatch.setattr(replica_module, "ReplicaLifecycle", functools.partial(ReplicaLifecycle, settings=quick))


@pytest.fixture
def hosted() -> Callable[[str], FleetSpec]:
    """A fleet of one replica that somebody else runs at this URL."""

    def make(url: str) -> FleetSpec:
        upstream = UpstreamSpec(url=f"{url}/v1", api_key="secret")
        return _fleet_of(_deployment(EngineSpec(name="openai"), 1, name="h", upstream=upstream))

    return make


@pytest.fixture
def fleet_of() -> Callable[..., FleetSpec]:
    """A fleet of these deployments."""
    return _fleet_of
