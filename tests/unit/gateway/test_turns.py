"""Limits before an engine, and one row in the ledger after it, whatever becomes of a request."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_plane import ENGINE_KEY, MODEL, RunningPlane, chat, data_plane, directory_of_tests, request, snapshot
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.ledger import CountedBy, LedgerRow, Outcome
from pilothouse.model.tenants import BudgetLimit, DirectoryChange, Limits, Period, Price, RateLimit
from pilothouse.telemetry import catalogue
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script

pytestmark = pytest.mark.asyncio

CHAT = "/v1/chat/completions"
COSTS = Price(input=1_000_000_000, output=3_000_000_000, cached_input=0)


@contextlib.asynccontextmanager
async def serving(
    tmp_path: Path, limits: Limits | None = None, *, price: Price | None = None, **deployment: Any
) -> AsyncIterator[tuple[FakeEngine, RunningPlane]]:
    options = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01)
    async with FakeEngine(options) as engine, contextlib.AsyncExitStack() as stack:
        fleet: FleetSnapshot = snapshot([engine.port], **deployment)
        fleet = msgspec.structs.replace(fleet, models=(msgspec.structs.replace(fleet.models[0], price=price),))
        tenants = directory_of_tests(limits or Limits())
        yield engine, await stack.enter_async_context(data_plane(fleet, tmp_path, tenants=tenants))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens elsewhere
        await asyncio.sleep(0.005)


def one_turn(plane: RunningPlane) -> LedgerRow:
    (row,) = plane.turns()
    return row


class TestLedger:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_turn_is_on_record_with_the_engines_numbers(self, stream: bool, tmp_path: Path) -> None:
        async with serving(tmp_path, price=COSTS) as (_, plane):
            answer = await plane.ask(CHAT, chat(stream=stream, max_tokens=7))
            row = one_turn(plane)
            assert row.id == answer.headers["x-pilothouse-request-id"]
            assert (row.organisation, row.tenant, row.key) == ("acme", "tests", "key_1")
            assert (row.model, row.deployment, row.outcome) == (MODEL, "fake", Outcome.COMPLETED)
            assert (row.output_tokens, row.counted_by) == (7, CountedBy.ENGINE)
            assert row.input_tokens == plane.count(catalogue.TOKENS, kind="input") > 0
            assert row.nano_cost == COSTS.nano_cost(row.input_tokens, 7, row.cached_tokens) > 0
            assert row.started_at < row.ended_at
            assert (row.first_content_at is not None) == stream

    async def test_the_row_is_there_when_the_last_event_arrives(self, tmp_path: Path) -> None:
        async with serving(tmp_path) as (engine, plane):
            engine.script(Script(split=(40,), write_interval_s=0.001))
            wire = await plane.send(request(CHAT, chat(stream=True, max_tokens=3)))
            await wire.head()
            while not (piece := await wire.chunk()).endswith(b"data: [DONE]\n\n"):
                assert plane.turns() == []
                assert piece
            assert one_turn(plane).outcome is Outcome.COMPLETED, "before the connection's own end"
            assert await wire.chunk() == b""

    @pytest.mark.parametrize("usage", ["omit", "null"])
    async def test_without_usage_events_are_counted(self, usage: Any, tmp_path: Path) -> None:
        async with serving(tmp_path) as (engine, plane):
            engine.script(Script(usage=usage))
            await plane.ask(CHAT, chat(stream=True, max_tokens=9))
            row = one_turn(plane)
            assert (row.output_tokens, row.counted_by) == (9, CountedBy.GATEWAY)
            assert row.input_tokens > 0

    async def test_a_stream_that_its_client_left_costs_what_was_generated(self, tmp_path: Path) -> None:
        async with serving(tmp_path) as (engine, plane):
            engine.script(Script(stall_after=4))
            wire = await plane.send(request(CHAT, chat(stream=True, max_tokens=50)))
            await wire.head()
            seen = b""
            while seen.count(b'"content":"') < 5:  # the opening has an empty one
                seen += await wire.chunk()
            wire.abort()
            await until(lambda: bool(plane.turns()))
            row = one_turn(plane)
            assert (row.outcome, row.output_tokens, row.counted_by) == (Outcome.CANCELLED, 4, CountedBy.GATEWAY)

    async def test_a_stream_that_its_engine_left_is_interrupted(self, tmp_path: Path) -> None:
        async with serving(tmp_path) as (engine, plane):
            engine.script(Script(close_after=3))
            assert b"replica_lost" in (await plane.ask(CHAT, chat(stream=True, max_tokens=50))).body
            row = one_turn(plane)
            assert (row.outcome, row.output_tokens) == (Outcome.INTERRUPTED, 3)

    async def test_an_answer_that_is_put_together_and_left_costs_what_was_generated(self, tmp_path: Path) -> None:
        async with serving(tmp_path, progress_field="return_progress") as (engine, plane):
            engine.script(Script(stall_after=3))
            wire = await plane.send(request(CHAT, chat(max_tokens=7)))
            await until(lambda: engine.state().running == 1 and plane.in_flight()[0] == 1)
            await asyncio.sleep(0.2)  # the three tokens are on their way
            wire.abort()
            await until(lambda: bool(plane.turns()))
            row = one_turn(plane)
            assert (row.outcome, row.output_tokens) == (Outcome.CANCELLED, 3)

    @pytest.mark.parametrize(
        "script",
        [
            Script(status=500),
            Script(status=400),
            Script(close_after=0),
            Script(close_after_bytes=0),
            Script(error_after=0, error={"error": {"message": "no"}}),
        ],
        ids=["500", "400", "cut", "nothing", "error event"],
    )
    async def test_an_error_costs_nothing(self, script: Script, tmp_path: Path) -> None:
        async with serving(tmp_path, price=COSTS) as (engine, plane):
            engine.script(script)
            assert (await plane.ask(CHAT, chat(stream=True))).status >= 400
            row = one_turn(plane)
            assert (row.outcome, row.input_tokens, row.output_tokens, row.nano_cost) == (Outcome.FAILED, 0, 0, 0)

    async def test_what_never_got_to_an_engine_is_not_a_turn(self, tmp_path: Path) -> None:
        async with serving(tmp_path, Limits(concurrent_requests=0)) as (_, plane):
            assert (await plane.ask(CHAT, chat())).status == 429
            assert (await plane.ask(CHAT, {"model": "none"})).status == 404
            assert plane.turns() == []


def minute(number: int, **more: Any) -> RateLimit:
    return RateLimit(per_minute=number, **more)


class TestLimits:
    async def test_a_request_too_many_is_refused_with_what_is_left(self, tmp_path: Path) -> None:
        async with serving(tmp_path, Limits(requests=minute(2), total_tokens=minute(100_000))) as (engine, plane):
            for _ in range(2):
                assert (await plane.ask(CHAT, chat(max_tokens=1))).status == 200
            refused = await plane.ask(CHAT, chat(max_tokens=1))
            assert (refused.status, refused.code) == (429, "rate_limit_exceeded")
            assert "key's limit of 2 requests per minute" in refused.json()["error"]["message"]
            assert 1 <= int(refused.headers["retry-after"]) <= 30
            assert refused.headers["x-ratelimit-limit-requests"] == "2"
            assert refused.headers["x-ratelimit-remaining-requests"] == "0"
            assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
            assert refused.headers["x-ratelimit-limit-tokens"] == "100000"
            assert engine.state().requests_total == 2
            assert plane.ended("rate_limit_exceeded") == 1

    async def test_what_a_request_did_not_use_comes_back(self, tmp_path: Path) -> None:
        async with serving(tmp_path, Limits(output_tokens=minute(300))) as (_, plane):
            for _ in range(8):  # each expected 256 and used 3
                assert (await plane.ask(CHAT, chat(stream=True, max_tokens=3))).status == 200
                assert (await plane.ask(CHAT, chat(max_tokens=3))).status == 200

    @pytest.mark.parametrize("script", [Script(status=500), Script(close_after_bytes=0)], ids=["500", "nothing"])
    async def test_a_failure_gives_everything_back(self, script: Script, tmp_path: Path) -> None:
        async with serving(tmp_path, Limits(requests=minute(1))) as (engine, plane):
            engine.script(script)
            assert (await plane.ask(CHAT, chat())).status >= 500
            assert (await plane.ask(CHAT, chat())).status == 200
            assert (await plane.ask(CHAT, chat())).status == 429

    async def test_an_unreachable_replica_gives_everything_back(self, tmp_path: Path) -> None:
        tenants = directory_of_tests(Limits(requests=minute(1)))
        async with data_plane(snapshot([1]), tmp_path, tenants=tenants) as plane:
            for _ in range(2):
                assert (await plane.ask(CHAT, chat())).code == "replica_unreachable"
            assert plane.turns() == []

    async def test_a_slot_is_held_for_as_long_as_the_stream(self, tmp_path: Path) -> None:
        async with serving(tmp_path, Limits(concurrent_requests=1)) as (engine, plane):
            engine.script(Script(stall_after=1))
            wire = await plane.send(request(CHAT, chat(stream=True)))
            await wire.head()
            refused = await plane.ask(CHAT, chat())
            assert (refused.status, refused.code) == (429, "rate_limit_exceeded")
            wire.abort()
            await until(lambda: plane.in_flight() == (0, 0))
            assert (await plane.ask(CHAT, chat())).status == 200

    async def test_a_spent_budget_is_no_rate(self, tmp_path: Path) -> None:
        budget = BudgetLimit(period=Period.MONTH, nano_money=2_000)
        async with serving(tmp_path, Limits(budgets=(budget,)), price=Price(output=1_000_000_000)) as (_, plane):
            assert (await plane.ask(CHAT, chat(max_tokens=1))).status == 200
            refused = await plane.ask(CHAT, chat(max_tokens=3))
            assert (refused.status, refused.code) == (429, "insufficient_quota")

    async def test_limits_change_while_a_key_is_used(self, tmp_path: Path) -> None:
        async with serving(tmp_path) as (_, plane):
            assert (await plane.ask(CHAT, chat())).status == 200
            limited = directory_of_tests(Limits(requests=minute(0))).keys
            plane.plane.callers.change(DirectoryChange(base=1, version=2, keys=limited))
            refused = await plane.ask(CHAT, chat())
            assert (refused.status, refused.code) == (429, "rate_limit_exceeded")

    async def test_a_client_that_leaves_while_the_authority_is_asked_takes_nothing(self, tmp_path: Path) -> None:
        async with serving(tmp_path, Limits(requests=minute(2))) as (engine, plane):
            turns = plane.plane.turns
            assert turns is not None
            asked: list[Callable[[], None]] = []
            ask, turns.ask = turns.ask, asked.append
            wire = await plane.send(request(CHAT, chat()))
            await until(lambda: bool(asked))
            wire.abort()
            await until(lambda: not plane.plane.connections)
            for each in asked:
                ask(each)
            turns.ask = ask
            for _ in range(2):
                assert (await plane.ask(CHAT, chat())).status == 200
            assert (await plane.ask(CHAT, chat())).status == 429
            assert engine.state().requests_total == 2

    async def test_two_answers_to_one_request_count_twice(self, tmp_path: Path) -> None:
        async with serving(tmp_path, Limits(output_tokens=minute(100))) as (_, plane):
            assert (await plane.ask(CHAT, chat(max_tokens=40, n=2))).status == 200
            refused = await plane.ask(CHAT, chat(max_tokens=60, n=2))
            assert refused.status == 429
