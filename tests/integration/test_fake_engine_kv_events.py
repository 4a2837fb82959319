"""KV events of the fake engine, read by a real ZeroMQ subscriber."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import zmq
import zmq.asyncio

from pilothouse.testing.fake_engine import EngineOptions, FakeEngine

TIMEOUT_MS = 5000
PROMPT = "0123456789abcdef" * 12  # 48 tokens: three blocks
MAIN_FIELDS = ("block_hashes", "token_ids", "block_size")


async def ask(engine: FakeEngine, prompt: str, **fields: Any) -> None:
    async with httpx2.AsyncClient(base_url=engine.url, trust_env=False) as client:
        answer = await client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1, **fields})
        assert answer.status_code == 200, answer.text


async def replay(context: zmq.asyncio.Context, endpoint: str, start: int) -> list[list[bytes]]:
    """The frames of each answer, without the delimiter, up to and with the end."""
    answers = []
    with context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.rcvtimeo = TIMEOUT_MS
        socket.connect(endpoint)
        await socket.send_multipart([b"", start.to_bytes(8, "big")])
        while True:
            delimiter, *frames = await socket.recv_multipart()
            assert delimiter == b""
            answers.append(frames)
            if not frames[-1]:
                return answers


def options(tmp_path: Path, **more: Any) -> EngineOptions:
    values: dict[str, Any] = {
        "step_base_ms": 1,
        "kv_blocks": 4,
        "kv_events_endpoint": f"ipc://{tmp_path}/events",
        "kv_events_replay_endpoint": f"ipc://{tmp_path}/replay",
        "kv_events_topic": "kv",
    }
    return EngineOptions(**{**values, **more})


@pytest.mark.asyncio
async def test_a_subscriber_hears_what_is_stored_removed_and_cleared(tmp_path: Path) -> None:
    context = zmq.asyncio.Context()
    async with FakeEngine(options(tmp_path)) as engine:
        with context.socket(zmq.SUB) as subscriber:
            subscriber.linger = 0
            subscriber.rcvtimeo = TIMEOUT_MS
            subscriber.subscribe(b"kv")
            subscriber.connect(f"ipc://{tmp_path}/events")
            # A subscription takes a moment to arrive; what was missed before is in the replay.
            number = 0
            while not await subscriber.poll(100):
                await ask(engine, f"{number:04}" * 16)
                number += 1
            topic, sequence, payload = await subscriber.recv_multipart()
            assert topic == b"kv"
            assert len(sequence) == 8
            _, events, rank = msgspec.msgpack.decode(payload)
            assert rank == 0
            stored = events[-1]
            assert stored.keys() == {"type", "parent_block_hash", "lora_id", "lora_name", "medium", *MAIN_FIELDS}
            assert stored["type"] == "BlockStored"
            assert stored["block_size"] == len(stored["token_ids"]) == 16
            assert all(0 <= value < 2**64 for value in stored["block_hashes"])

            engine.reset()
            await ask(engine, PROMPT, cache_salt="tenant")
            following = events
            while following[0]["type"] != "AllBlocksCleared":
                following = msgspec.msgpack.decode((await subscriber.recv_multipart())[2])[1]
            assert [event["type"] for event in following] == ["AllBlocksCleared", "BlockStored"]
            assert following[1]["extra_keys"] == [["tenant"], None, None]
            assert following[1]["parent_block_hash"] is None

            # Another prompt of three blocks, with four in all: the end of the first one is forgotten.
            await ask(engine, PROMPT[::-1])
            evicting = msgspec.msgpack.decode((await subscriber.recv_multipart())[2])[1]
            assert [event["type"] for event in evicting] == ["BlockRemoved", "BlockStored"]
            assert evicting[0]["block_hashes"] == following[1]["block_hashes"][:0:-1]
            assert evicting[0]["medium"] == "GPU"
    context.term()


@pytest.mark.asyncio
async def test_missed_batches_can_be_asked_for(tmp_path: Path) -> None:
    context = zmq.asyncio.Context()
    async with FakeEngine(options(tmp_path, kv_blocks=100)) as engine:
        for text in ("a", "b", "c"):
            await ask(engine, text * 64)
        for start, expected in ((0, [0, 1, 2]), (2, [2]), (9, [])):
            *batches, end = await replay(context, f"ipc://{tmp_path}/replay", start)
            assert [int.from_bytes(number, "big") for _, number, _ in batches] == expected
            assert end == [b"kv", b"\xff" * 8, b""]
            assert all(topic == b"kv" for topic, _, _ in batches)
    context.term()


@pytest.mark.asyncio
async def test_old_versions_sent_arrays_and_no_topic_in_replays(tmp_path: Path) -> None:
    context = zmq.asyncio.Context()
    async with FakeEngine(options(tmp_path, kv_events_format="array")) as engine:
        await ask(engine, PROMPT)
        (number, payload), end = await replay(context, f"ipc://{tmp_path}/replay", 0)
        assert number == bytes(8)
        assert end == [b"\xff" * 8, b""]
        event = msgspec.msgpack.decode(payload)[1][0]
        assert event[0] == "BlockStored"
        assert len(event[1]) == 3
        assert event[2] is None
        assert len(event[3]) == 48
        assert event[4:7] == [16, None, "GPU"]
    context.term()


@pytest.mark.asyncio
async def test_a_wildcard_is_bound_and_its_port_is_told() -> None:
    context = zmq.asyncio.Context()
    chosen = EngineOptions(
        step_base_ms=1, kv_events_endpoint="tcp://*:0", kv_events_replay_endpoint="tcp://127.0.0.1:0"
    )
    async with FakeEngine(chosen) as engine:
        state = engine.state().kv
        assert state.events_endpoint is not None
        assert state.events_endpoint.startswith("tcp://0.0.0.0:")
        assert state.replay_endpoint is not None
        await ask(engine, PROMPT)
        assert len(await replay(context, state.replay_endpoint, 0)) == 2
    context.term()


@pytest.mark.asyncio
async def test_an_address_without_wildcard_is_connected_to() -> None:
    context = zmq.asyncio.Context()
    with context.socket(zmq.SUB) as subscriber:
        subscriber.linger = 0
        subscriber.subscribe(b"")
        port = subscriber.bind_to_random_port("tcp://127.0.0.1")
        async with FakeEngine(EngineOptions(step_base_ms=1, kv_events_endpoint=f"tcp://127.0.0.1:{port}")) as engine:
            number = 0
            while not await subscriber.poll(100):
                await ask(engine, f"{number:04}" * 16)
                number += 1
            assert len(await subscriber.recv_multipart()) == 3
    context.term()


@pytest.mark.asyncio
async def test_an_endpoint_that_cannot_be_had_is_an_os_error(tmp_path: Path) -> None:
    async with FakeEngine(EngineOptions(kv_events_endpoint="tcp://*:0")) as first:
        taken = (first.state().kv.events_endpoint or "").replace("0.0.0.0", "*")
        with pytest.raises(OSError, match="KV events endpoint"):
            async with FakeEngine(EngineOptions(kv_events_endpoint=taken)):
                await asyncio.sleep(0)
