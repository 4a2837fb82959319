"""The real `openai` client against the data plane, sync and async, streaming and not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from data_plane import ENGINE_KEY, KEY, MODEL, RunningPlane, data_plane, settled, snapshot
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@contextlib.asynccontextmanager
async def fleet(tmp_path: Path) -> AsyncIterator[tuple[FakeEngine, RunningPlane, openai.AsyncOpenAI]]:
    options = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01)
    async with FakeEngine(options) as engine, contextlib.AsyncExitStack() as stack:
        plane = await stack.enter_async_context(data_plane(snapshot([engine.port]), tmp_path))
        client = openai.AsyncOpenAI(base_url=f"{plane.url}/v1", api_key=KEY, max_retries=0)
        yield engine, plane, await stack.enter_async_context(client)


@pytest.mark.asyncio
async def test_chat(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, _, client):
        answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=5)
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 5
        assert answer.choices[0].message.content
        assert answer.choices[0].finish_reason == "length"


@pytest.mark.asyncio
async def test_chat_stream(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, _, client):
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=5, stream=True)
        chunks = [chunk async for chunk in stream]
        whole = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=5)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == whole.choices[0].message.content
        assert all(chunk.usage is None and chunk.choices for chunk in chunks)


@pytest.mark.asyncio
async def test_stream_with_usage(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, _, client):
        stream = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=5, stream=True, stream_options={"include_usage": True}
        )
        usages = [chunk.usage async for chunk in stream if chunk.usage]
        assert [usage.completion_tokens for usage in usages] == [5]


@pytest.mark.asyncio
async def test_several_choices(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, _, client):
        answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4, n=3)
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4, n=3, stream=True)
        assert {chunk.choices[0].index async for chunk in stream} == {0, 1, 2}


@pytest.mark.asyncio
async def test_tools_and_unknown_fields_reach_the_engine(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (engine, _, client):
        tool: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=2, tools=[tool], extra_body={"top_k": 3, "priority": -9}
        )
        sent = engine.requests[-1].json()
        assert (sent["tools"], sent["top_k"]) == ([tool], 3)
        assert "priority" not in sent


@pytest.mark.asyncio
async def test_completions(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, _, client):
        answer = await client.completions.create(model=MODEL, prompt="once", max_tokens=4)
        stream = await client.completions.create(model=MODEL, prompt="once", max_tokens=4, stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == answer.choices[0].text


@pytest.mark.asyncio
async def test_embeddings(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, _, client):
        answer = await client.embeddings.create(model=MODEL, input=["a", "b"])
        assert [len(each.embedding) for each in answer.data] == [64, 64]


@pytest.mark.asyncio
async def test_models(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, _, client):
        assert [model.id async for model in client.models.list()] == [MODEL]
        assert (await client.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("org/other")


@pytest.mark.asyncio
async def test_responses(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, _, client):
        answer = await client.responses.create(model=MODEL, input="hi", max_output_tokens=5)
        assert answer.output_text
        stream = await client.responses.create(model=MODEL, input="hi", max_output_tokens=5, stream=True)
        kinds = [event.type async for event in stream]
        assert kinds[0] == "response.created"
        assert kinds[-1] in {"response.completed", "response.incomplete"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("script", "error", "code"),
    [
        (Script(close_after_bytes=0), openai.InternalServerError, "replica_lost"),
        (Script(status=503), openai.InternalServerError, None),
        (Script(status=429), openai.RateLimitError, None),
        (Script(status=400), openai.BadRequestError, None),
    ],
)
async def test_errors_of_engines(
    script: Script, error: type[openai.APIStatusError], code: str | None, tmp_path: Path
) -> None:
    async with fleet(tmp_path) as (engine, _, client):
        engine.script(script)
        with pytest.raises(error) as caught:
            await client.chat.completions.create(model=MODEL, messages=MESSAGES)
        if code is not None:
            assert caught.value.code == code


@pytest.mark.asyncio
async def test_errors_of_the_gateway(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, plane, client):
        with pytest.raises(openai.AuthenticationError) as wrong_key:
            await client.with_options(api_key="ph_wrong").models.list()
        assert wrong_key.value.code == "invalid_api_key"
        with pytest.raises(openai.NotFoundError) as no_model:
            await client.chat.completions.create(model="none", messages=MESSAGES)
        assert (no_model.value.code, no_model.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError) as wrong_type:
            await client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"max_tokens": "a"})
        assert (wrong_type.value.code, wrong_type.value.param) == ("invalid_type", "max_tokens")
        plane.plane.apply(snapshot([], version=2))
        with pytest.raises(openai.InternalServerError) as none_ready:
            await client.chat.completions.create(model=MODEL, messages=MESSAGES)
        assert none_ready.value.status_code == 503
        assert none_ready.value.response.headers["retry-after"] == "2"


@pytest.mark.asyncio
async def test_an_engine_lost_mid_stream_raises_in_the_client(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (engine, _, client):
        engine.script(Script(close_after=5))
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=50, stream=True)
        received = 0
        with pytest.raises(openai.APIError, match="went away"):  # noqa: PT012 - the chunks before it count
            async for _ in stream:
                received += 1
        assert received >= 1


@pytest.mark.asyncio
async def test_headers(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, _, client):
        raw = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=MESSAGES, max_tokens=2, extra_headers={"x-request-id": "mine"}
        )
        assert raw.headers["x-request-id"] == "mine"
        assert raw.headers["x-pilothouse-request-id"].startswith("req_")
        assert float(raw.headers["x-pilothouse-overhead-ms"]) < 5000


@pytest.mark.asyncio
async def test_closing_a_stream_stops_the_engine(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (engine, plane, client):
        engine.script(Script(stall_after=5))
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=500, stream=True)
        await anext(aiter(stream))
        await stream.close()
        await settled(plane)
        assert plane.ended("client_disconnected") == 1


@pytest.mark.asyncio
async def test_many_streams_at_once(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, plane, client):

        async def one(number: int) -> int:
            stream = await client.chat.completions.create(
                model=MODEL, messages=MESSAGES, max_tokens=10 + number, stream=True
            )
            return sum([bool(chunk.choices[0].delta.content) async for chunk in stream])

        counts = await asyncio.gather(*map(one, range(20)))
        assert counts == [10 + number for number in range(20)]
        assert plane.ended("ok") == 20


@pytest.mark.asyncio
async def test_the_synchronous_client(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (_, plane, _):

        def use() -> tuple[str | None, str]:
            with openai.OpenAI(base_url=f"{plane.url}/v1", api_key=KEY, max_retries=0) as client:
                whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=6)
                stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=6, stream=True)
                text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
                with pytest.raises(openai.NotFoundError):
                    client.chat.completions.create(model="none", messages=MESSAGES)
                return whole.choices[0].message.content, text

        whole, streamed = await asyncio.to_thread(use)
        assert whole == streamed
