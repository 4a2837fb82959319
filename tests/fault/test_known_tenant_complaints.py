"""What tenants of other gateways complain about (T1 to T3), through ours: the engine, the reservation and the ledger.

The names are those of the public threads that report it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_plane import ENGINE_KEY, MODEL, RunningPlane, chat, data_plane, directory_of_tests, request, snapshot
from pilothouse.model.fleet import Capacity
from pilothouse.model.ledger import CountedBy, LedgerRow, Outcome
from pilothouse.model.tenants import Limits, RateLimit
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script

pytestmark = pytest.mark.asyncio

CHAT = "/v1/chat/completions"
ONE_SLOT = Limits(concurrent_requests=1)


@contextlib.asynccontextmanager
async def serving(
    tmp_path: Path, limits: Limits = ONE_SLOT, **deployment: Any
) -> AsyncIterator[tuple[FakeEngine, RunningPlane]]:
    options = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01)
    async with FakeEngine(options) as engine, contextlib.AsyncExitStack() as stack:
        fleet = snapshot([engine.port], **deployment)
        yield engine, await stack.enter_async_context(data_plane(fleet, tmp_path, tenants=directory_of_tests(limits)))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(1.0):
        while not condition():  # noqa: ASYNC110 - what is waited for happens elsewhere
            await asyncio.sleep(0.005)


def only_row(plane: RunningPlane) -> LedgerRow:
    (row,) = plane.turns()
    return row


async def the_slot_is_free(plane: RunningPlane) -> bool:
    return (await plane.ask(CHAT, chat(max_tokens=1))).status == 200


class TestT1Disconnects:
    @pytest.mark.parametrize(
        ("stream", "script"),
        [(True, Script(delay_s=600)), (True, Script(stall_after=2)), (False, Script(delay_s=600))],
        ids=[
            "before the first byte: litellm 13774, 22805, 31499; smg 2136; Dynamo 14775",
            "mid-stream: litellm 30244, 27955; sglang 11399, 19524, 39461; production-stack 634",
            "not streamed: litellm 37140",
        ],
    )
    async def test_the_engine_stops_within_a_second_and_everything_comes_back_once(
        self, stream: bool, script: Script, tmp_path: Path
    ) -> None:
        async with serving(tmp_path) as (engine, plane):
            engine.script(script)
            wire = await plane.send(request(CHAT, chat(stream=stream)))
            await until(lambda: plane.in_flight()[0] == 1)
            if script.stall_after:
                await wire.head()
            assert (await plane.ask(CHAT, chat())).status == 429, "the slot is taken"
            wire.abort()
            await until(lambda: engine.state().running == 0 and plane.in_flight() == (0, 0))
            assert only_row(plane).outcome is Outcome.CANCELLED
            assert await the_slot_is_free(plane)
            assert (await plane.ask(CHAT, chat(max_tokens=1))).status == 200, "and it has come back once"

    async def test_litellm_27955_and_smg_2064_a_client_that_leaves_the_queue_keeps_no_slot(
        self, tmp_path: Path
    ) -> None:
        limits = Limits(concurrent_requests=2)
        async with serving(tmp_path, limits, capacity=Capacity(slots=1, tokens=10_000)) as (engine, plane):
            engine.script(Script(stall_after=1))
            first = await plane.send(request(CHAT, chat(stream=True)))
            await first.head()
            second = await plane.send(request(CHAT, chat()))
            await until(lambda: plane.plane.queues[MODEL].waiting == 1)
            assert (await plane.ask(CHAT, chat())).status == 429
            second.abort()
            await until(lambda: plane.plane.queues[MODEL].waiting == 0)
            assert plane.turns() == [], "it never got to an engine"
            third = await plane.send(request(CHAT, chat()))
            await until(lambda: plane.plane.queues[MODEL].waiting == 1)
            for wire in (first, third):
                wire.abort()

    async def test_dynamo_10923_a_disconnect_loses_no_billing(self, tmp_path: Path) -> None:
        async with serving(tmp_path) as (engine, plane):
            engine.script(Script(stall_after=5))
            wire = await plane.send(request(CHAT, chat(stream=True)))
            await wire.head()
            seen = b""
            while seen.count(b'"content":"') < 6:
                seen += await wire.chunk()
            wire.abort()
            await until(lambda: bool(plane.turns()))
            row = only_row(plane)
            assert (row.outcome, row.output_tokens) == (Outcome.CANCELLED, 5)

    async def test_sglang_36475_the_next_turn_of_a_session_is_not_touched_by_an_abandoned_one(
        self, tmp_path: Path
    ) -> None:
        async with serving(tmp_path) as (engine, plane):
            engine.script(Script(stall_after=2))
            wire = await plane.send(request(CHAT, chat(stream=True, user="a-session")))
            await wire.head()
            wire.abort()
            await until(lambda: engine.state().running == 0 and plane.in_flight() == (0, 0))
            answer = await plane.ask(CHAT, chat(stream=True, user="a-session", max_tokens=3))
            assert answer.body.endswith(b"data: [DONE]\n\n")
            assert [row.output_tokens for row in plane.turns()] == [2, 3]


class TestT2Usage:
    async def test_litellm_14457_and_34147_a_cancelled_stream_costs_what_was_seen_and_no_more(
        self, tmp_path: Path
    ) -> None:
        async with serving(tmp_path) as (engine, plane):
            engine.script(Script(output_tokens=500, write_interval_s=0.001, split=(400,)))
            wire = await plane.send(request(CHAT, chat(stream=True, max_tokens=500)))
            await wire.head()
            seen = b""
            while seen.count(b'"content":"') < 10:
                seen += await wire.chunk()
            wire.abort()
            await until(lambda: bool(plane.turns()))
            row = only_row(plane)
            assert row.output_tokens >= 9
            assert row.output_tokens < 500, "the engine was stopped, and is not waited for"
            assert row.counted_by is CountedBy.GATEWAY

    @pytest.mark.parametrize("stream", [False, True])
    async def test_litellm_37992_a_usage_of_zero_is_zero(self, stream: bool, tmp_path: Path) -> None:
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        body = {"object": "chat.completion", "choices": [], "usage": usage}
        async with serving(tmp_path) as (engine, plane):
            if stream:
                event = msgspec.json.encode({"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": usage})
                text = f"data: {event.decode()}\n\ndata: [DONE]\n\n"
                engine.script(Script(status=200, body=text, headers={"content-type": "text/event-stream"}))
            else:
                engine.script(Script(status=200, body=body))
            assert (await plane.ask(CHAT, chat(stream=stream))).status == 200
            row = only_row(plane)
            assert (row.input_tokens, row.output_tokens, row.counted_by) == (0, 0, CountedBy.ENGINE)

    async def test_litellm_36168_usage_beside_choices_is_counted_with_its_cached_tokens(self, tmp_path: Path) -> None:
        usage = {"prompt_tokens": 90, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 80}}
        last = {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}], "usage": usage}
        first = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
        text = "".join(f"data: {msgspec.json.encode(each).decode()}\n\n" for each in (first, last)) + "data: [DONE]\n\n"
        async with serving(tmp_path) as (engine, plane):
            engine.script(Script(status=200, body=text, headers={"content-type": "text/event-stream"}))
            answer = await plane.ask(CHAT, chat(stream=True))
            assert b'"content":"b"' in answer.body
            row = only_row(plane)
            assert (row.input_tokens, row.cached_tokens, row.output_tokens) == (90, 80, 2)

    async def test_litellm_35290_usage_is_asked_for_stripped_and_has_the_reasoning_tokens(self, tmp_path: Path) -> None:
        details = {"reasoning_tokens": 40}
        usage = {"prompt_tokens": 9, "completion_tokens": 44, "completion_tokens_details": details}
        first = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
        last = {"choices": [], "usage": usage}
        text = "".join(f"data: {msgspec.json.encode(each).decode()}\n\n" for each in (first, last)) + "data: [DONE]\n\n"
        async with serving(tmp_path) as (engine, plane):
            engine.script(Script(status=200, body=text, headers={"content-type": "text/event-stream"}))
            answer = await plane.ask(CHAT, chat(stream=True))
            assert engine.requests[-1].json()["stream_options"] == {"include_usage": True}
            assert b'"usage"' not in answer.body
            row = only_row(plane)
            assert (row.output_tokens, row.reasoning_tokens) == (44, 40)

    async def test_llm_d_router_2437_usage_of_streamed_messages_is_counted(self, tmp_path: Path) -> None:
        async with serving(tmp_path) as (_, plane):
            answer = await plane.ask("/v1/messages", chat(stream=True, max_tokens=7))
            assert b"message_stop" in answer.body
            row = only_row(plane)
            assert (row.outcome, row.output_tokens, row.counted_by) == (Outcome.COMPLETED, 7, CountedBy.ENGINE)
            assert row.input_tokens > 0


class TestT3Limits:
    async def test_litellm_37001_of_two_output_limits_the_larger_is_reserved(self, tmp_path: Path) -> None:
        limits = Limits(output_tokens=RateLimit(per_minute=300))
        async with serving(tmp_path, limits) as (engine, plane):
            engine.script(Script(stall_after=1))
            both = chat(stream=True, max_tokens=1, max_completion_tokens=10_000)
            wire = await plane.send(request(CHAT, both))
            await wire.head()
            assert (await plane.ask(CHAT, chat(max_tokens=100))).status == 429, "256 of 300 are reserved"
            wire.abort()

    async def test_litellm_39309_a_request_without_a_slot_takes_no_request_of_the_minute(self, tmp_path: Path) -> None:
        limits = Limits(concurrent_requests=1, requests=RateLimit(per_minute=2))
        async with serving(tmp_path, limits) as (engine, plane):
            engine.script(Script(stall_after=1))
            wire = await plane.send(request(CHAT, chat(stream=True)))
            await wire.head()
            for _ in range(5):
                refused = await plane.ask(CHAT, chat())
                assert "concurrent" in refused.json()["error"]["message"]
            wire.abort()
            await until(lambda: plane.in_flight() == (0, 0))
            assert await the_slot_is_free(plane)
            assert "per minute" in (await plane.ask(CHAT, chat())).json()["error"]["message"]

    async def test_litellm_18730_and_bifrost_3547_a_burst_does_not_pass_a_limit(self, tmp_path: Path) -> None:
        async with serving(tmp_path, Limits(requests=RateLimit(per_minute=7))) as (engine, plane):
            answers = await asyncio.gather(*(plane.ask(CHAT, chat(max_tokens=1)) for _ in range(40)))
            statuses = [each.status for each in answers]
            assert (statuses.count(200), statuses.count(429)) == (7, 33)
            assert engine.state().requests_total == 7

    async def test_litellm_29193_a_small_limit_works_without_max_tokens(self, tmp_path: Path) -> None:
        async with serving(tmp_path, Limits(total_tokens=RateLimit(per_minute=100))) as (engine, plane):
            engine.script(Script(output_tokens=3))
            assert (await plane.ask(CHAT, chat())).status == 200
