import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from pilothouse.config.paths import FleetPaths
from pilothouse.model.fleet import Endpoint
from pilothouse.model.ids import DeploymentName, ModelName, ReplicaId
from pilothouse.model.spec import DeploymentSpec, EngineSpec
from pilothouse.placement.local import LocalPlacement, Placement, RunningProcess, end_recorded_processes
from pilothouse.placement.weights import ProgressSink, Silent


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


@pytest_asyncio.fixture
async def placement(paths: FleetPaths) -> AsyncIterator[LocalPlacement]:
    """A placement with the test's own environment."""
    placement = LocalPlacement(paths, dict(os.environ))
    yield placement
    placement.close()


@pytest.fixture
def deployment() -> DeploymentSpec:
    """A deployment that needs no weights."""
    return DeploymentSpec(name=DeploymentName("a"), model=ModelName("m"), engine=EngineSpec(name="fake"), replicas=1)


@pytest.fixture
def no_progress() -> ProgressSink:
    """A sink for progress that nobody watches."""
    return Silent()


Start = Callable[..., Awaitable[RunningProcess]]


@pytest.fixture
def start(deployment: DeploymentSpec, no_progress: ProgressSink) -> Start:
    """Place and launch a replica that runs Python code."""

    async def start(placement: LocalPlacement, code: str, replica: str = "a-0", **env: str) -> RunningProcess:
        placed = await placement.place(
            deployment, ReplicaId(replica), memory_need=lambda weights: None, progress=no_progress
        )
        return await placement.launch(placed, argv=(sys.executable, "-c", code), env=env, endpoint=endpoint_of(placed))

    return start


def endpoint_of(placed: Placement) -> Endpoint:
    return Endpoint(host=placed.host, port=placed.port, authorization=f"Bearer {placed.api_key}")
