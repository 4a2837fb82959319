"""The fake engine misbehaving as told, and noticing that its client has gone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio

from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script
from pilothouse.testing.processes import wait_until

CHAT = "/v1/chat/completions"


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(EngineOptions(step_base_ms=1, scriptable=True)) as engine:
        yield engine


@pytest_asyncio.fixture
async def client(engine: FakeEngine) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=engine.url, trust_env=False) as client:
        yield client


def question(stream: bool = True, tokens: int = 4, **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": tokens, **fields}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


async def events(client: httpx2.AsyncClient, path: str = CHAT, **fields: Any) -> list[str]:
    """The data of all events of one stream."""
    answer = await client.post(path, json=question(**fields))
    assert answer.status_code == 200
    return [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]


def contents(data: list[str]) -> list[str]:
    chunks = [msgspec.json.decode(each) for each in data if each != "[DONE]"]
    return [choice["delta"]["content"] for chunk in chunks for choice in chunk.get("choices", ())][1:]


@pytest.mark.asyncio
async def test_an_error_instead_of_an_answer(engine: FakeEngine, client: httpx2.AsyncClient) -> None:
    engine.script(
        Script(status=429, body={"error": {"message": "slow down"}}, headers={"retry-after": "7"}),
        Script(status=502, body="<html>bad gateway</html>", headers={"content-type": "text/html"}),
        Script(status=500),
    )
    limited = await client.post(CHAT, json=question())
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "7")
    assert limited.json() == {"error": {"message": "slow down"}}
    bad = await client.post(CHAT, json=question())
    assert (bad.status_code, bad.text) == (502, "<html>bad gateway</html>")
    assert bad.headers.get_list("content-type") == ["text/html"]
    broken = await client.post(CHAT, json=question())
    assert (broken.status_code, broken.json()["error"]["code"]) == (500, 500)
    assert (await client.post(CHAT, json=question())).status_code == 200


@pytest.mark.asyncio
async def test_scripts_by_header_and_by_route(client: httpx2.AsyncClient) -> None:
    order = {"script": {"status": 503}, "times": 2}
    assert (await client.post("/fake/script", json=order)).json() == {"scripts_waiting": 2}
    await client.post("/fake/script", json={"script": {"status": 500}, "path": "/health"})

    by_header = await client.post(CHAT, json=question(stream=False), headers={"x-fake-engine": '{"text": "mine"}'})
    assert by_header.json()["choices"][0]["message"]["content"] == "mine"
    statuses = [(await client.post(CHAT, json=question())).status_code for _ in range(3)]
    assert statuses == [503, 503, 200]
    assert [(await client.get("/health")).status_code for _ in range(2)] == [500, 200]

    wrong = await client.post(CHAT, json=question(), headers={"x-fake-engine": '{"sttatus": 1}'})
    assert wrong.status_code == 400
    assert "unknown field `sttatus`" in wrong.json()["error"]["message"]
    bad: Any
    for bad in ({"scripts": []}, {"script": {}, "times": 0}, {"script": {"status": 1}}):
        assert (await client.post("/fake/script", json=bad)).status_code == 400


@pytest.mark.asyncio
async def test_nothing_can_be_scripted_unless_allowed() -> None:
    async with (
        FakeEngine(EngineOptions(step_base_ms=1)) as engine,
        httpx2.AsyncClient(base_url=engine.url, trust_env=False) as client,
    ):
        answer = await client.post(CHAT, json=question(), headers={"x-fake-engine": '{"status": 503}'})
        assert answer.status_code == 200
        assert (await client.post("/fake/script", json={"script": {}})).status_code == 403
        assert (await client.post("/fake/reset")).status_code == 403


@pytest.mark.asyncio
async def test_faults_of_a_stream_in_its_content(engine: FakeEngine, client: httpx2.AsyncClient) -> None:
    good = await events(client)
    assert len(contents(good)) == 4
    assert msgspec.json.decode(good[-2])["usage"]["completion_tokens"] == 4

    engine.script(Script(omit_done=True), Script(usage="omit"), Script(usage="null"))
    assert "[DONE]" not in await events(client)
    assert "usage" not in "".join(await events(client))
    assert msgspec.json.decode((await events(client))[-2])["usage"] is None

    engine.script(Script(error_after=2), Script(error_after=0, error={"error": {"code": "mine"}}))
    data = await events(client)
    assert len(contents(data)) == 2
    assert msgspec.json.decode(data[-2])["error"]["code"] == 500
    assert data[-1] == "[DONE]"
    data = await events(client)
    assert [msgspec.json.decode(each) for each in data[:-1]] == [{"error": {"code": "mine"}}]
    assert engine.state().finished["error"] == 2


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
@pytest.mark.asyncio
async def test_an_error_event_in_other_dialects(engine: FakeEngine, client: httpx2.AsyncClient, path: str) -> None:
    engine.script(Script(error_after=1))
    answer = await client.post(path, json=question(input="hello"))
    assert answer.text.count("event: error\n") == 1
    assert answer.text.endswith("\n\n")
    assert "completed" not in answer.text
    assert "message_stop" not in answer.text


@pytest.mark.asyncio
async def test_an_error_in_the_middle_of_an_answer_that_is_not_streamed(
    engine: FakeEngine, client: httpx2.AsyncClient
) -> None:
    engine.script(Script(error_after=2))
    assert (await client.post(CHAT, json=question(stream=False))).status_code == 500


@pytest.mark.asyncio
async def test_crlf_and_comments(engine: FakeEngine, client: httpx2.AsyncClient) -> None:
    good = await events(client)
    engine.script(Script(line_ending="crlf", comment_every=2))
    answer = await client.post(CHAT, json=question())
    assert answer.text.count(": keep-alive\r\n\r\n") == len(good) // 2 + len(good) % 2
    assert "\n" not in answer.text.replace("\r\n", "")
    assert contents([line[6:] for line in answer.text.split("\r\n") if line.startswith("data")]) == contents(good)


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.asyncio
async def test_a_malformed_chunk(engine: FakeEngine, client: httpx2.AsyncClient, after: int) -> None:
    engine.script(Script(malformed_chunk_after=after))
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.post(CHAT, json=question())
    await wait_until(lambda: engine.state().in_flight == 0, "the broken stream is over")


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.asyncio
async def test_the_connection_closes_in_the_middle(
    engine: FakeEngine, client: httpx2.AsyncClient, stream: bool, after: int
) -> None:
    engine.script(Script(close_after=after))
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.post(CHAT, json=question(stream=stream, tokens=50))
    state = engine.state()
    assert (state.running, state.in_flight, state.kv.used) == (0, 0, 0)
    assert state.aborted == 1


@pytest.mark.asyncio
async def test_a_stalled_stream_keeps_its_place_and_goes_on(engine: FakeEngine, client: httpx2.AsyncClient) -> None:
    engine.script(Script(stall_after=2, stall_s=0.05))
    asking = asyncio.get_running_loop().create_task(events(client))
    await wait_until(lambda: engine.state().generation_tokens == 2, "two tokens")
    await asyncio.sleep(0.01)
    assert (engine.state().running, engine.state().generation_tokens) == (1, 2)
    assert len(contents(await asking)) == 4


@pytest.mark.parametrize(
    "script",
    [
        Script(delay_s=60),
        Script(stall_after=0),
        Script(stall_after=3),
        Script(),
        Script(split=(1,), write_interval_s=0.05),
    ],
    ids=["before the head", "before the first token", "mid-stream", "while it decodes", "between slow bytes"],
)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.asyncio
async def test_a_client_that_goes_away_frees_everything_at_once(
    engine: FakeEngine, script: Script, stream: bool
) -> None:
    engine.script(script)
    body = msgspec.json.encode(question(stream=stream, tokens=20_000))
    _, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    writer.write(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (CHAT.encode(), len(body), body))
    await wait_until(lambda: engine.state().running == 1, "the request runs")
    if script.stall_after:
        await wait_until(lambda: engine.state().generation_tokens == script.stall_after, "the stall")
    writer.close()
    await wait_until(lambda: engine.state().aborted == 1, "the engine notices", timeout_s=1.0)
    state = engine.state()
    assert (state.running, state.waiting, state.in_flight, state.kv.used) == (0, 0, 0, 0)


@pytest.mark.asyncio
async def test_a_waiting_request_is_aborted_as_well() -> None:
    async with (
        FakeEngine(EngineOptions(step_base_ms=1, max_num_seqs=1)) as engine,
        httpx2.AsyncClient(base_url=engine.url, trust_env=False) as client,
    ):
        engine.script(Script(stall_after=1))
        loop = asyncio.get_running_loop()
        first, second = (loop.create_task(client.post(CHAT, json=question(tokens=9))) for _ in range(2))
        await wait_until(lambda: engine.state().waiting == 1, "the second waits")
        metrics = (await client.get("/metrics")).text
        assert 'vllm:num_requests_running{engine="0",model_name="fake-model"} 1.0' in metrics
        assert 'vllm:num_requests_waiting{engine="0",model_name="fake-model"} 1.0' in metrics
        second.cancel()
        await wait_until(lambda: engine.state().aborted == 1, "the waiting one is gone")
        assert engine.state().running == 1
        first.cancel()
        await wait_until(lambda: engine.state().in_flight == 0, "both are gone")
        metrics = (await client.get("/metrics")).text
        assert 'finished_reason="abort"} 2.0' in metrics


@pytest.mark.asyncio
async def test_a_request_for_embeddings_can_be_delayed_and_aborted(
    engine: FakeEngine, client: httpx2.AsyncClient
) -> None:
    engine.script(Script(delay_s=0.02), Script(delay_s=60))
    assert (await client.post("/v1/embeddings", json={"input": "x"})).status_code == 200
    waiting = asyncio.get_running_loop().create_task(client.post("/v1/embeddings", json={"input": ["x", "y"]}))
    await wait_until(lambda: engine.state().running == 2, "both prompts are held")
    waiting.cancel()
    await wait_until(lambda: engine.state().aborted == 2, "both are gone")


@pytest.mark.asyncio
async def test_what_came_in_can_be_asked_for(engine: FakeEngine, client: httpx2.AsyncClient) -> None:
    await client.post(CHAT, json=question(), headers={"authorization": "Bearer secret", "X-Mixed-Case": "kept"})
    (seen,) = engine.requests
    assert (seen.method, seen.path, seen.header("x-mixed-case")) == ("POST", CHAT, "kept")
    assert seen.json()["max_tokens"] == 4

    state = (await client.get("/fake/state")).text
    assert "secret" not in state
    shown = msgspec.json.decode(state)["requests"][0]
    assert shown["body_bytes"] == len(seen.body)
    assert ["x-mixed-case", "kept"] in shown["headers"]


@pytest.mark.asyncio
async def test_a_reset_ends_what_runs_and_forgets_the_rest(engine: FakeEngine, client: httpx2.AsyncClient) -> None:
    await events(client)
    engine.script(Script(stall_after=2), Script(status=503))
    stalled = asyncio.get_running_loop().create_task(events(client))
    await wait_until(lambda: engine.state().running == 1, "one is stalled")
    state = (await client.post("/fake/reset")).json()
    assert (state["running"], state["scripts_waiting"], state["requests"], state["kv"]["cached"]) == (0, 0, [], 0)
    assert '"finish_reason":"abort"' in "".join(await stalled)


@pytest.mark.asyncio
async def test_many_slow_streams_share_the_batch() -> None:
    options = EngineOptions(step_base_ms=5, step_per_sequence_ms=0, max_num_seqs=64, kv_blocks=4096)
    async with (
        FakeEngine(options) as engine,
        httpx2.AsyncClient(base_url=engine.url, trust_env=False, limits=httpx2.Limits(max_connections=100)) as client,
    ):
        answers = await asyncio.gather(*(events(client, tokens=8) for _ in range(80)))
        assert all(len(contents(answer)) == 8 for answer in answers)
        state = engine.state()
        assert (state.generation_tokens, state.finished, state.kv.used) == (640, {"length": 80}, 0)


@pytest.mark.asyncio
async def test_zero_latency_answers_with_the_same_bytes() -> None:
    asked = question(seed=5, tokens=30)
    async with (
        FakeEngine(EngineOptions(zero_latency=True)) as instant,
        FakeEngine(EngineOptions(step_base_ms=0, step_per_sequence_ms=0)) as timed,
        httpx2.AsyncClient(trust_env=False) as client,
    ):
        texts = []
        for engine in (instant, timed):
            answer = await client.post(engine.url + CHAT, json=asked)
            texts.append(contents([line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]))
        assert texts[0] == texts[1]
        assert instant.state().finished == {"length": 1}
        instant.script(Script(stall_after=2))
        stalled = asyncio.get_running_loop().create_task(client.post(instant.url + CHAT, json=asked))
        await wait_until(lambda: instant.state().running == 1, "it is stalled")
        stalled.cancel()
        await wait_until(lambda: instant.state().aborted == 1, "it is aborted")


@pytest.mark.parametrize("script", [Script(close_after=3), Script(error_after=3), Script(stall_after=3, stall_s=0.01)])
@pytest.mark.asyncio
async def test_faults_of_several_choices_with_zero_latency(script: Script) -> None:
    async with FakeEngine(EngineOptions(zero_latency=True, script=script)) as engine:
        async with httpx2.AsyncClient(base_url=engine.url, trust_env=False) as client:
            try:
                answer = await client.post(CHAT, json=question(n=3, tokens=9))
            except httpx2.RemoteProtocolError:
                assert script.close_after is not None
            else:
                assert ('"code":500' in answer.text) is (script.error_after is not None)
                assert answer.text.endswith("data: [DONE]\n\n")
        state = engine.state()
        assert (state.running, state.in_flight) == (0, 0)
