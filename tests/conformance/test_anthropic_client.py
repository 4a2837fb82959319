"""The real `anthropic` client: its dialect passes through, its errors are its own."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import anthropic
import pytest
from anthropic.types import MessageParam

from data_plane import ENGINE_KEY, KEY, MODEL, RunningPlane, data_plane, snapshot
from pilothouse.telemetry import catalogue
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script

MESSAGES: list[MessageParam] = [{"role": "user", "content": "hi"}]


@contextlib.asynccontextmanager
async def fleet(tmp_path: Path) -> AsyncIterator[tuple[FakeEngine, RunningPlane, anthropic.AsyncAnthropic]]:
    options = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01)
    async with FakeEngine(options) as engine, contextlib.AsyncExitStack() as stack:
        plane = await stack.enter_async_context(data_plane(snapshot([engine.port]), tmp_path))
        client = anthropic.AsyncAnthropic(base_url=plane.url, api_key=KEY, max_retries=0)
        yield engine, plane, await stack.enter_async_context(client)


@pytest.mark.asyncio
async def test_messages(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (engine, plane, client):
        answer = await client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=5)
        assert answer.usage.output_tokens == 5
        assert engine.requests[-1].header("x-api-key") is None
        assert plane.count(catalogue.TOKENS, kind="output") == 5


@pytest.mark.asyncio
async def test_messages_stream_and_their_usage(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, plane, client):
        async with client.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=5) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            final = await stream.get_final_message()
        assert text
        assert final.usage.output_tokens == 5
        assert plane.count(catalogue.TOKENS, kind="output") == 5
        assert plane.count(catalogue.TOKENS, kind="input") == final.usage.input_tokens


@pytest.mark.asyncio
async def test_errors(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (engine, _, client):
        with pytest.raises(anthropic.AuthenticationError):
            await client.with_options(api_key="wrong").messages.create(model=MODEL, messages=MESSAGES, max_tokens=1)
        with pytest.raises(anthropic.NotFoundError) as missing:
            await client.messages.create(model="none", messages=MESSAGES, max_tokens=1)
        assert missing.value.type == "not_found_error"
        engine.script(Script(close_after_bytes=0), path="/v1/messages")
        with pytest.raises(anthropic.InternalServerError) as lost:
            await client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=1)
        assert lost.value.status_code == 502
