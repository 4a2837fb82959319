from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pilothouse.cli.bench_client import Outcome
from pilothouse.cli.bench_load import Load, run_load
from pilothouse.cli.target import Target
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script
from pilothouse.testing.processes import free_port


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(EngineOptions(step_base_ms=1, scriptable=True, served_model_names=("fake",))) as engine:
        yield engine


def load(**fields: object) -> Load:
    defaults = {
        "model": "fake",
        "requests": 6,
        "duration_s": None,
        "concurrency": 3,
        "prompt_tokens": 20,
        "max_tokens": 5,
        "stream": True,
        "seed": 1,
    }
    return Load(**{**defaults, **fields})  # type: ignore[arg-type]


async def outcomes(engine: FakeEngine, **fields: object) -> list[Outcome]:
    told: list[Outcome] = []
    found = await run_load(Target(url=engine.url, api_key=None), load(**fields), told.append)
    assert told == found
    return found


@pytest.mark.asyncio
async def test_streams_are_timed_piece_by_piece(engine: FakeEngine) -> None:
    found = await outcomes(engine)
    assert len(found) == 6
    for each in found:
        assert each.error is None
        assert each.output_tokens == len(each.tokens_at) == 5
        assert each.input_tokens > 0
        assert [each.started, *each.tokens_at, each.ended] == sorted([each.started, *each.tokens_at, each.ended])


@pytest.mark.asyncio
async def test_whole_answers_are_counted_by_the_server(engine: FakeEngine) -> None:
    found = await outcomes(engine, stream=False)
    assert [(each.error, each.output_tokens, each.tokens_at) for each in found] == [(None, 5, ())] * 6


@pytest.mark.asyncio
async def test_connections_are_kept_and_opened_again_when_the_server_closes_them(engine: FakeEngine) -> None:
    engine.script(Script(headers={"connection": "close"}), times=2)
    found = await outcomes(engine, concurrency=1)
    assert [each.error for each in found] == [None] * 6


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("script", "code"),
    [
        (Script(status=503, body={"error": {"message": "no", "code": "no_ready_replica"}}), "no_ready_replica"),
        (Script(status=502, body="<html>"), "http_502"),
        (Script(error_after=2, error={"error": {"message": "no", "code": "replica_lost"}}), "replica_lost"),
        (Script(close_after=2), "connection_lost"),
        (Script(close_after_bytes=0), "connection_lost"),
        (Script(malformed_chunk_after=2), "bad_answer"),
        (Script(stall_after=1), "timeout"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_goes_wrong_is_counted_by_its_code_and_the_run_goes_on(
    engine: FakeEngine, script: Script, code: str
) -> None:
    engine.script(script)
    timeout_s = 0.5 if code == "timeout" else 600.0
    found = await outcomes(engine, requests=3, concurrency=1, request_timeout_s=timeout_s)
    assert [each.error for each in found] == [code, None, None]


@pytest.mark.asyncio
async def test_bytes_that_come_in_pieces_make_the_same_answer(engine: FakeEngine) -> None:
    engine.script(Script(split=(1, 2, 3)), Script(line_ending="crlf"), Script(usage="omit"))
    found = await outcomes(engine, requests=3, concurrency=1)
    assert [(each.error, each.output_tokens) for each in found] == [(None, 5)] * 3


@pytest.mark.asyncio
async def test_a_server_that_is_not_there(engine: FakeEngine) -> None:
    target = Target(url=f"http://127.0.0.1:{free_port()}", api_key=None)
    found = await run_load(target, load(requests=2, concurrency=1), lambda _: None)
    assert [each.error for each in found] == ["connect_failed"] * 2


@pytest.mark.asyncio
async def test_a_run_by_time_ends(engine: FakeEngine) -> None:
    found = await outcomes(engine, requests=None, duration_s=0.2)
    assert len(found) >= 3
    assert {each.error for each in found} == {None}


@pytest.mark.asyncio
async def test_the_key_is_sent() -> None:
    options = EngineOptions(step_base_ms=1, api_key="secret")
    async with FakeEngine(options) as engine:
        with_key = Target(url=engine.url, api_key="secret")
        fields = {"model": options.served_model_names[0], "requests": 1, "concurrency": 1}
        [good] = await run_load(with_key, load(**fields), lambda _: None)
        [refused] = await run_load(Target(url=engine.url, api_key=None), load(**fields), lambda _: None)
    assert good.error is None
    assert refused.error is not None
