"""What an engine hears of who asks is the gateway's to say, and nobody else's."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from data_plane import ENGINE_KEY, MODEL, RunningPlane, chat, data_plane, directory_of_tests, snapshot
from pilothouse.engines.registry import driver
from pilothouse.gateway.callers import tenant_salt
from pilothouse.model.ids import DeploymentName, ModelName, TenantId
from pilothouse.model.spec import DeploymentSpec, EngineSpec
from pilothouse.model.tenants import Tier
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine

CHAT = "/v1/chat/completions"
FIELDS: dict[str, Any] = {"salt_field": "cache_salt", "priority_field": "priority"}


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, tier: Tier, **deployment: Any) -> AsyncIterator[tuple[FakeEngine, RunningPlane]]:
    options = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01)
    async with FakeEngine(options) as engine, contextlib.AsyncExitStack() as stack:
        fleet = snapshot([engine.port], **FIELDS, **deployment)
        tenants = directory_of_tests(tenant={"tier": tier})
        yield engine, await stack.enter_async_context(data_plane(fleet, tmp_path, tenants=tenants))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("priorities", "tier", "heard"),
    [
        ({Tier.REALTIME: 0, Tier.BATCH: 2}, Tier.BATCH, 2),
        ({Tier.REALTIME: 2, Tier.BATCH: 0}, Tier.BATCH, 0),
        ({}, Tier.REALTIME, None),
    ],
    ids=["lower first", "higher first", "no priorities"],
)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("theirs", [{}, {"priority": -99, "cache_salt": "another tenant's"}], ids=["plain", "forged"])
async def test_salt_and_priority_are_the_gateways(
    priorities: Mapping[Tier, int], tier: Tier, heard: int | None, stream: bool, theirs: dict[str, Any], tmp_path: Path
) -> None:
    async with serving(tmp_path, tier, priorities=dict(priorities)) as (engine, plane):
        answer = await plane.ask(CHAT, chat(stream=stream, max_tokens=1, **theirs))
        assert answer.status == 200
        asked = engine.requests[-1].json()
        assert asked["cache_salt"] == tenant_salt(TenantId("tests"))
        assert asked.get("priority") == heard
        assert asked["messages"] == chat()["messages"]
        assert (asked["stream"], asked["max_tokens"]) == (stream, 1)


def test_tenants_have_salts_of_their_own_that_every_engine_takes() -> None:
    one, other = tenant_salt(TenantId("one")), tenant_salt(TenantId("other"))
    assert one != other
    assert len(one) <= 128, "vLLM's bound"
    assert one.isalnum()


def test_priorities_are_sent_only_to_an_engine_that_schedules_by_them() -> None:
    def deployment(**args: object) -> DeploymentSpec:
        return DeploymentSpec(
            name=DeploymentName("d"), model=ModelName("m"), engine=EngineSpec(name="fake", args=args), replicas=1
        )

    fake = driver("fake")
    assert fake.priorities(deployment()) == {}
    ordered = fake.priorities(deployment(**{"scheduling-policy": "priority"}))
    assert ordered[Tier.REALTIME] < ordered[Tier.STANDARD] < ordered[Tier.BATCH]


@pytest.mark.parametrize("name", ["fake", "llamacpp", "openai"])
def test_what_the_gateway_says_no_client_may_say(name: str) -> None:
    engine = driver(name)
    for field in (engine.salt_field, engine.priority_field):
        assert field is None or field in engine.reserved_fields
