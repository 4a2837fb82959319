"""Requests that use a feature go to no deployment that must not get them, and quarantined ones get nothing new."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_plane import ENGINE_KEY, MODEL, RunningPlane, data_plane, request, settled, snapshot
from pilothouse.model.fleet import DeploymentView, FleetSnapshot
from pilothouse.model.ids import DeploymentName, ReplicaId
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine

pytestmark = pytest.mark.asyncio

CHAT = "/v1/chat/completions"
ENGINE = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, zero_latency=True)
SLOW = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY)  # ten milliseconds a token
IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]


def asks(content: Any = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 3, **fields}


def two_deployments(ports: tuple[int, int], first: dict[str, Any], second: dict[str, Any]) -> FleetSnapshot:
    one, other = snapshot(ports[:1], **first), snapshot(ports[1:], **second)
    deployment = other.models[0].deployments[0]
    replicas = tuple(msgspec.structs.replace(each, id=ReplicaId("other-0")) for each in deployment.replicas)
    renamed: DeploymentView = msgspec.structs.replace(deployment, name=DeploymentName("other"), replicas=replicas)
    model = msgspec.structs.replace(one.models[0], deployments=(*one.models[0].deployments, renamed))
    return msgspec.structs.replace(one, models=(model,))


@asynccontextmanager
async def plane_of(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any]
) -> AsyncIterator[tuple[RunningPlane, FakeEngine, FakeEngine]]:
    async with (
        FakeEngine(ENGINE) as one,
        FakeEngine(ENGINE) as other,
        data_plane(two_deployments((one.port, other.port), first, second), tmp_path) as plane,
    ):
        yield plane, one, other


async def test_a_withheld_feature_goes_to_another_deployment(tmp_path: Path) -> None:
    async with plane_of(tmp_path, {"without": ("multimodal",)}, {}) as (plane, text_only, other):
        for _ in range(6):
            assert (await plane.ask(CHAT, asks(IMAGE))).status == 200
        assert (len(text_only.requests), len(other.requests)) == (0, 6)
        for _ in range(60):  # each of the two gets half of them, by chance
            assert (await plane.ask(CHAT, asks())).status == 200
        assert len(text_only.requests) > 0


async def test_where_no_deployment_may_get_it_the_client_is_told(tmp_path: Path) -> None:
    without = {"without": ("multimodal",)}
    async with plane_of(tmp_path, without, {"without": ("multimodal", "structured_output")}) as (plane, one, other):
        answer = await plane.ask(CHAT, asks(IMAGE))
        assert (answer.status, answer.code) == (400, "feature_withheld")
        assert "multimodal" in answer.json()["error"]["message"]
        assert (len(one.requests), len(other.requests)) == (0, 0)
        assert (await plane.ask(CHAT, asks())).status == 200
        assert (await plane.ask(CHAT, asks(response_format={"type": "json_object"}))).status == 200
        assert len(other.requests) <= 1


async def test_a_deployment_that_may_but_is_not_ready_is_worth_waiting_for(tmp_path: Path) -> None:
    async with plane_of(tmp_path, {"without": ("multimodal",)}, {"replicas": ()}) as (plane, _, _):
        answer = await plane.ask(CHAT, asks(IMAGE))
        assert (answer.status, answer.code) == (503, "no_ready_replica")


async def test_a_large_body_is_looked_at_too(tmp_path: Path) -> None:
    async with plane_of(tmp_path, {"without": ("multimodal",)}, {"without": ("multimodal",)}) as (plane, _, _):
        large = [{"type": "text", "text": "word " * 20_000}]
        assert (await plane.ask(CHAT, asks(large))).status == 200
        assert (await plane.ask(CHAT, asks([*large, *IMAGE]))).code == "feature_withheld"
        unreadable = request(CHAT, b'{"model":"%b","messages":%b' % (MODEL.encode(), b"[" * 2000 + b"]" * 2000 + b"}"))
        wire = await plane.send(unreadable)
        assert (await wire.answer()).code == "invalid_json"


async def test_quarantine_ends_new_turns_and_lets_running_ones_finish(tmp_path: Path) -> None:
    async with FakeEngine(SLOW) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        wire = await plane.send(request(CHAT, asks(stream=True, max_tokens=20)))
        assert (await wire.head())[0] == 200
        streamed = await wire.chunk()
        plane.plane.apply(snapshot([engine.port], version=2, quarantined=True))
        assert (await plane.ask(CHAT, asks())).code == "no_ready_replica"
        while piece := await wire.chunk():
            streamed += piece
        assert streamed.endswith(b"data: [DONE]\n\n")
        await settled(plane)
        plane.plane.apply(snapshot([engine.port], version=3))
        assert (await plane.ask(CHAT, asks())).status == 200
