"""The fake engine as a process: how it starts, what it refuses, how it ends."""

import asyncio
import signal
import sys

import httpx2
import pytest

from pilothouse.testing.processes import free_port, running_fake_engine, running_process, wait_until

COMMAND = (sys.executable, "-P", "-m", "pilothouse.testing.fake_engine")
CHAT = "/v1/chat/completions"
ENDLESS = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 30_000, "stream": True}


@pytest.mark.asyncio
async def test_sigterm_ends_streams_with_the_reason_abort_and_the_process_with_code_0() -> None:
    async with running_fake_engine("--step-base-ms=5") as (process, url), httpx2.AsyncClient(trust_env=False) as client:
        async with client.stream("POST", url + CHAT, json=ENDLESS) as answer:
            lines = answer.aiter_lines()
            assert (await anext(lines)).startswith("data: ")
            process.send(signal.SIGTERM)
            rest = [line async for line in lines if line]
        assert '"finish_reason":"abort"' in rest[-2]
        assert rest[-1] == "data: [DONE]"
        assert await process.wait() == 0
        with pytest.raises(httpx2.ConnectError):
            await client.get(url + "/health")


@pytest.mark.asyncio
async def test_sigterm_with_a_timeout_lets_streams_finish() -> None:
    options = ("--step-base-ms=5", "--shutdown-timeout-s=10")
    asked = {**ENDLESS, "max_tokens": 40}
    async with running_fake_engine(*options) as (process, url), httpx2.AsyncClient(trust_env=False) as client:
        async with client.stream("POST", url + CHAT, json=asked) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            process.send(signal.SIGTERM)
            rest = [line async for line in lines if line]
        assert '"finish_reason":"length"' in rest[-2]
        assert len(rest) == 40 + 1
        assert await process.wait() == 0


@pytest.mark.asyncio
async def test_requests_that_are_not_streamed_get_what_there_is() -> None:
    async with running_fake_engine("--step-base-ms=5") as (process, url), httpx2.AsyncClient(trust_env=False) as client:
        asking = asyncio.get_running_loop().create_task(client.post(url + CHAT, json={**ENDLESS, "stream": False}))
        for _ in range(200):
            if (await client.get(url + "/fake/state")).json()["running"]:
                break
        process.send(signal.SIGTERM)
        answer = (await asking).json()
        assert answer["choices"][0]["finish_reason"] == "abort"
        assert await process.wait() == 0


@pytest.mark.asyncio
async def test_the_key_guards_v1_and_nothing_else() -> None:
    async with running_fake_engine(key="sesame") as (_, url), httpx2.AsyncClient(trust_env=False) as client:
        refused = await client.get(url + "/v1/models")
        assert (refused.status_code, refused.json()) == (401, {"error": "Unauthorized"})
        allowed = await client.get(url + "/v1/models", headers={"authorization": "Bearer sesame"})
        assert allowed.status_code == 200
        for path in ("/health", "/version", "/metrics", "/fake/state"):
            assert (await client.get(url + path)).status_code == 200
        assert (await client.post(url + "/tokenize", json={"prompt": "one two"})).json()["count"] == 2
        assert (await client.post(url + "/health")).status_code == 405


@pytest.mark.asyncio
async def test_it_does_not_listen_before_its_start_up_is_over_and_can_be_ended_before() -> None:
    port = free_port()
    async with running_process((*COMMAND, f"--port={port}", "--startup-delay-s=60")) as process:
        await asyncio.sleep(0.3)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        while process.returncode is None:  # a signal before the handler is there ends it with another code
            process.send(signal.SIGTERM)
            await asyncio.sleep(0.05)
        assert process.lines == ()


@pytest.mark.asyncio
async def test_a_taken_port_and_a_bad_option_are_told_and_end_it() -> None:
    async with (
        running_fake_engine() as (_, url),
        running_process((*COMMAND, f"--port={url.rpartition(':')[2]}")) as second,
    ):
        assert await second.wait() == 1
        assert "address already in use" in second.lines[-1]
    async with running_process((*COMMAND, "--kv-blocks=none")) as wrong:
        assert await wrong.wait() == 2
        assert "--kv-blocks: invalid int value" in wrong.lines[-1]


@pytest.mark.asyncio
async def test_a_thousand_slow_streams() -> None:
    options = (
        "--step-base-ms=300", "--step-per-sequence-ms=0", "--max-num-seqs=1000", "--kv-blocks=8192",
        "--record-requests=0",
    )  # fmt: skip
    body = b'{"prompt":"hello","max_tokens":3,"stream":true}'
    request = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"

    async with running_fake_engine(*options) as (_, url):
        port = int(url.rpartition(":")[2])
        done = 0

        async def ask() -> None:
            nonlocal done
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request % (len(body), body))
            answer = await reader.read(-1)
            assert answer.count(b"data: {") == 3
            writer.close()
            done += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(1000):
                group.create_task(ask())
        await wait_until(lambda: done == 1000, "all answers")
