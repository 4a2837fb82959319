"""What is written down of a request, and of which requests."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_plane import ENGINE_KEY, KEY, MODEL, RunningPlane, chat, data_plane, request, snapshot
from pilothouse.gateway.access_log import AccessLog, RequestEnded
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import RequestId
from pilothouse.policy.draw import Draws
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script

CHAT = "/v1/chat/completions"


class Log:
    def __init__(self, directory: Path, sample: float = 1.0) -> None:
        self.path = directory / "access-0.log"
        self.log = AccessLog(self.path, sample, Draws(1))

    def lines(self) -> list[dict[str, Any]]:
        self.log.flush()
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    found = Log(tmp_path)
    yield found
    found.log.close()


@contextlib.asynccontextmanager
async def serving(log: Log, tmp_path: Path) -> AsyncIterator[tuple[FakeEngine, RunningPlane]]:
    options = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01)
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(FakeEngine(options))
        fleet = snapshot([engine.port])
        yield engine, await stack.enter_async_context(data_plane(fleet, tmp_path, access_log=log.log))


@pytest.mark.asyncio
async def test_a_request_that_went_well(log: Log, tmp_path: Path) -> None:
    async with serving(log, tmp_path) as (_, plane):
        answer = await plane.ask(CHAT, chat(max_tokens=7), headers={"x-request-id": "mine"})
    (line,) = log.lines()
    assert line.pop("ts").endswith("Z")
    assert msgspec.convert({**line, "ts": ""}, RequestEnded).reason == "ok"
    assert line.pop("duration_us") >= line.pop("overhead_us") > 0
    assert line.pop("request_bytes") > 0
    assert line.pop("input_tokens") == answer.json()["usage"]["prompt_tokens"]
    assert line.pop("cached_tokens", 0) >= 0
    assert line == {
        "event": "request_ended",
        "request_id": answer.headers["x-pilothouse-request-id"],
        "client_request_id": "mine",
        "route": CHAT,
        "status": 200,
        "reason": "ok",
        "model": MODEL,
        "tenant": "tests",
        "key": "key_1",
        "replica": "r0",
        "attempts": 1,
        "output_tokens": 7,
    }
    assert KEY not in log.path.read_text()
    assert log.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.asyncio
async def test_streams_errors_and_disconnects(log: Log, tmp_path: Path) -> None:
    async with serving(log, tmp_path) as (engine, plane):
        await plane.ask(CHAT, chat(max_tokens=7, stream=True))
        engine.script(Script(error_after=0, error={"error": {"message": "no", "code": 507}}))
        await plane.ask(CHAT, chat(stream=True))
        engine.script(Script(close_after=0))
        await plane.ask(CHAT, chat())
        await plane.ask(CHAT, b"{")
        await plane.ask(CHAT, chat(), key="ph_wrong-wrong-wrong")
        await plane.ask("/nowhere", method="GET")
        await plane.ask("/v1/models", method="GET")
        engine.script(Script(stall_after=2))
        wire = await plane.send(request(CHAT, chat(stream=True)))
        await wire.head()
        wire.abort()
    found = [(line["route"], line["status"], line["reason"], line.get("tenant")) for line in log.lines()]
    assert found == [
        (CHAT, 200, "ok", "tests"),
        (CHAT, 507, "engine_error", "tests"),
        (CHAT, 502, "replica_lost", "tests"),
        (CHAT, 400, "invalid_json", "tests"),
        (CHAT, 401, "invalid_api_key", None),
        ("other", 404, "unknown_url", None),
        ("/v1/models", 200, "ok", "tests"),
        (CHAT, 499, "client_disconnected", "tests"),
    ]
    stream = log.lines()[0]
    assert (stream["stream"], stream["output_tokens"]) == (True, 7)
    assert 0 < stream["first_token_us"] <= stream["duration_us"]
    for line in log.lines():
        msgspec.convert(line, RequestEnded)


def test_a_share_of_the_good_and_all_of_the_bad(tmp_path: Path) -> None:
    log = Log(tmp_path, 0.25)
    ids = [RequestId(f"req_{number:024x}") for number in range(4000)]
    taken = [each for each in ids if log.log.takes(each, 200)]
    assert abs(len(taken) - 1000) < 150
    assert taken == [each for each in ids if log.log.takes(each, 200)], "the same ones again"
    assert all(log.log.takes(each, 400) for each in ids)
    log.log.close()
    none = Log(tmp_path, 0.0)
    assert not any(none.log.takes(each, 200) for each in ids)
    none.log.close()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(PilothouseError, match=r"nowhere/access-0\.log") as caught:
        AccessLog(tmp_path / "nowhere" / "access-0.log", 1.0, Draws(1))
    assert caught.value.code == "state_unreadable"
