"""Requests wait in the gateway when a model's capacity is used up, and leave nothing behind wherever they end."""

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_plane import (
    ENGINE_KEY,
    MODEL,
    PEPPER,
    RunningPlane,
    Wire,
    chat,
    data_plane,
    directory_of_tests,
    request,
    snapshot,
)
from pilothouse.gateway.model_queue import deadline_of
from pilothouse.model.fleet import Capacity
from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.ledger import Outcome
from pilothouse.model.tenants import Key, Limits, RateLimit, Tenant, TenantDirectory, Tier
from pilothouse.telemetry import catalogue
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script

pytestmark = pytest.mark.asyncio

CHAT = "/v1/chat/completions"
URGENT_KEY = "ph_an-urgent-one"
STALLED = Script(stall_after=1)
SILENT = Script(delay_s=600)


def tenants(**tenant: Any) -> TenantDirectory:
    """The tests' own tenant, and one of the tier `realtime`."""
    own = directory_of_tests(tenant=tenant)
    urgent = Tenant(id=TenantId("urgent"), organisation=OrganisationId("acme"), name="", tier=Tier.REALTIME)
    key = Key(id=KeyId("key_2"), tenant=urgent.id, digest=hmac.digest(PEPPER, URGENT_KEY.encode(), "sha256"))
    return msgspec.structs.replace(own, tenants=(*own.tenants, urgent), keys=(*own.keys, key))


@contextlib.asynccontextmanager
async def one_place(
    tmp_path: Path, directory: TenantDirectory | None = None, *, slots: int = 1, tokens: int = 100_000
) -> AsyncIterator[tuple[FakeEngine, RunningPlane]]:
    options = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01)
    async with FakeEngine(options) as engine, contextlib.AsyncExitStack() as stack:
        fleet = snapshot([engine.port], capacity=Capacity(slots=slots, tokens=tokens))
        yield engine, await stack.enter_async_context(data_plane(fleet, tmp_path, tenants=directory or tenants()))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens elsewhere
        await asyncio.sleep(0.005)


def waiting(plane: RunningPlane) -> int:
    return plane.plane.queues[MODEL].waiting


async def hold_the_place(engine: FakeEngine, plane: RunningPlane, script: Script = STALLED) -> Wire:
    engine.script(script)
    wire = await plane.send(request(CHAT, chat(stream=True)))
    await until(lambda: plane.in_flight()[0] == 1)
    if script is STALLED:
        await wire.head()
    return wire


async def test_who_finds_no_place_waits_for_one(tmp_path: Path) -> None:
    async with one_place(tmp_path) as (engine, plane):
        first = await hold_the_place(engine, plane)
        second = await plane.send(request(CHAT, chat(max_tokens=2)))
        await until(lambda: waiting(plane) == 1)
        assert plane.count(catalogue.QUEUE_WAITING) == 1
        assert engine.state().requests_total == 1, "it waits here and not in the engine"
        first.abort()
        assert (await second.answer()).status == 200
        assert plane.count(catalogue.QUEUE_WAITING) == 0
        assert plane.count(catalogue.QUEUE_WAIT) == 1


async def test_a_client_that_leaves_the_queue_leaves_nothing_behind(tmp_path: Path) -> None:
    async with one_place(tmp_path) as (engine, plane):
        first = await hold_the_place(engine, plane)
        second = await plane.send(request(CHAT, chat()))
        await until(lambda: waiting(plane) == 1)
        second.abort()
        await until(lambda: waiting(plane) == 0)
        assert plane.count(catalogue.QUEUE_WAITING) == 0
        first.abort()
        await until(lambda: plane.in_flight() == (0, 0))
        assert (await plane.ask(CHAT, chat(max_tokens=1))).status == 200
        assert engine.state().requests_total == 2
        assert [row.outcome for row in plane.turns()] == [Outcome.CANCELLED, Outcome.COMPLETED]


async def test_the_urgent_go_first(tmp_path: Path) -> None:
    async with one_place(tmp_path) as (engine, plane):
        first = await hold_the_place(engine, plane)
        usual = await plane.send(request(CHAT, chat(max_tokens=1)))
        await until(lambda: waiting(plane) == 1)
        urgent = await plane.send(request(CHAT, chat(max_tokens=1), key=URGENT_KEY))
        await until(lambda: waiting(plane) == 2)
        first.abort()
        assert (await urgent.answer()).status == 200
        assert (await usual.answer()).status == 200
        assert [row.tenant for row in plane.turns()] == ["tests", "urgent", "tests"]


async def test_the_urgent_take_a_place_of_which_nobody_has_seen_a_byte(tmp_path: Path) -> None:
    async with one_place(tmp_path) as (engine, plane):
        usual = await hold_the_place(engine, plane, SILENT)
        urgent = await plane.send(request(CHAT, chat(max_tokens=1), key=URGENT_KEY))
        await until(lambda: waiting(plane) == 1)
        plane.plane.queues[MODEL].tick()
        assert (await urgent.answer()).status == 200
        answer = await usual.answer()
        assert answer.status == 200
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert plane.count(catalogue.PREEMPTIONS) == 1
        assert [(row.tenant, row.outcome) for row in plane.turns()] == [
            ("urgent", Outcome.COMPLETED),
            ("tests", Outcome.COMPLETED),
        ]


async def test_but_not_one_whose_answer_has_begun(tmp_path: Path) -> None:
    async with one_place(tmp_path) as (engine, plane):
        usual = await hold_the_place(engine, plane)
        urgent = await plane.send(request(CHAT, chat(max_tokens=1), key=URGENT_KEY))
        await until(lambda: waiting(plane) == 1)
        plane.plane.queues[MODEL].tick()
        assert waiting(plane) == 1
        usual.abort()
        assert (await urgent.answer()).status == 200
        assert plane.count(catalogue.PREEMPTIONS) == 0


async def test_a_deadline_that_cannot_be_met_is_refused_early(tmp_path: Path) -> None:
    async with one_place(tmp_path) as (engine, plane):
        first = await hold_the_place(engine, plane)
        late = await plane.send(request(CHAT, chat(), headers={"x-pilothouse-deadline-ms": "30"}))
        await until(lambda: waiting(plane) == 1)
        await asyncio.sleep(0.05)
        plane.plane.queues[MODEL].tick()
        answer = await late.answer()
        assert (answer.status, answer.code) == (503, "deadline_unreachable")
        assert plane.turns() == []
        first.abort()


async def test_a_full_queue_says_so_and_gives_back_what_was_reserved(tmp_path: Path) -> None:
    own = directory_of_tests(Limits(requests=RateLimit(per_minute=3)))
    async with one_place(tmp_path, own) as (engine, plane):
        plane.plane.queues.clear()
        plane.plane.queue_settings = msgspec.structs.replace(plane.plane.queue_settings, max_waiting=0)
        fleet = plane.plane.table.snapshot
        plane.plane.apply(msgspec.structs.replace(fleet, version=2))
        first = await hold_the_place(engine, plane)
        refused = await plane.ask(CHAT, chat())
        assert (refused.status, refused.code) == (503, "queue_full")
        first.abort()
        await until(lambda: plane.in_flight() == (0, 0))
        for _ in range(2):
            assert (await plane.ask(CHAT, chat(max_tokens=1))).status == 200
        assert (await plane.ask(CHAT, chat(max_tokens=1))).status == 429


async def test_tokens_are_a_capacity_too(tmp_path: Path) -> None:
    async with one_place(tmp_path, slots=8, tokens=400) as (engine, plane):
        first = await hold_the_place(engine, plane)  # some 10 of input, and 256 expected
        second = await plane.send(request(CHAT, chat(max_tokens=300)))
        await until(lambda: waiting(plane) == 1)
        first.abort()
        assert (await second.answer()).status == 200


async def test_more_replicas_are_more_places(tmp_path: Path) -> None:
    async with one_place(tmp_path) as (engine, plane):
        first = await hold_the_place(engine, plane)
        second = await plane.send(request(CHAT, chat(max_tokens=1)))
        await until(lambda: waiting(plane) == 1)
        plane.plane.apply(snapshot([engine.port], version=2, capacity=Capacity(slots=2, tokens=100_000)))
        assert (await second.answer()).status == 200
        first.abort()


async def test_who_waits_goes_to_the_replicas_there_are_then(tmp_path: Path) -> None:
    async with one_place(tmp_path) as (engine, plane):
        first = await hold_the_place(engine, plane)
        second = await plane.send(request(CHAT, chat(max_tokens=1)))
        await until(lambda: waiting(plane) == 1)
        plane.plane.apply(snapshot([], version=2))
        first.abort()
        answer = await second.answer()
        assert (answer.status, answer.code) == (503, "no_ready_replica")


async def test_deadlines_that_make_no_sense_are_none() -> None:
    header = b"x-pilothouse-deadline-ms"
    assert deadline_of([(header, b"250")], 5) == 250_000_005
    assert deadline_of([(header, b"-1")], 5) is None
    assert deadline_of([(header, b"9" * 30)], 5) is None
    assert deadline_of([(b"x", b"1")], 5) is None


async def test_who_waited_while_a_feature_was_withheld_does_not_get_it_all_the_same(tmp_path: Path) -> None:
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}]
    async with one_place(tmp_path) as (engine, plane):
        first = await hold_the_place(engine, plane)
        second = await plane.send(request(CHAT, chat(messages=image)))
        await until(lambda: waiting(plane) == 1)
        one = Capacity(slots=1, tokens=100_000)
        plane.plane.apply(snapshot([engine.port], version=2, capacity=one, without=("multimodal",)))
        first.abort()
        assert (await second.answer()).code == "feature_withheld"
        assert engine.state().requests_total == 1
