import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest
import pytest_asyncio

from pilothouse.cli.chat_session import ChatSession
from pilothouse.cli.output import CommandError
from pilothouse.cli.target import Target
from pilothouse.model.errors import PilothouseError
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script
from pilothouse.testing.processes import free_port, wait_until

Result = TypeVar("Result")


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(EngineOptions(step_base_ms=1, scriptable=True, served_model_names=("fake", "b"))) as engine:
        yield engine


async def in_session(
    engine: FakeEngine, talk: Callable[[ChatSession], Result], *, model: str | None = None, system: str | None = None
) -> Result:
    def run() -> Result:
        with ChatSession(Target(url=engine.url, api_key=None), model=model, system=system) as session:
            return talk(session)

    return await asyncio.to_thread(run)


@pytest.mark.asyncio
async def test_an_answer_comes_in_pieces_and_stays_in_the_history(engine: FakeEngine) -> None:
    engine.script(Script(text="one two three"), Script(text="four"))

    def talk(session: ChatSession) -> tuple[list[str], list[str], tuple[dict[str, str], ...], str]:
        return list(session.ask("count")), list(session.ask("go on")), session.messages, session.model

    first, second, messages, model = await in_session(engine, talk, system="Be brief.")
    assert len(first) > 1
    assert "".join(first) == "one two three"
    assert "".join(second) == "four"
    assert model == "fake"
    assert messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "count"},
        {"role": "assistant", "content": "one two three"},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": "four"},
    )


@pytest.mark.asyncio
async def test_an_answer_that_is_ended_is_ended_on_the_server_too(engine: FakeEngine) -> None:
    engine.script(Script(output_tokens=1000, stall_after=5))

    def talk(session: ChatSession) -> tuple[dict[str, str], ...]:
        answer = session.ask("go on for ever")
        next(answer)
        answer.close()
        return session.messages

    messages = await in_session(engine, talk)
    assert [each["role"] for each in messages] == ["user", "assistant"]
    await wait_until(lambda: engine.state().running == 0, "the engine stops generating")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("script", "code"),
    [
        (Script(status=503, body={"error": {"message": "wait", "code": "no_ready_replica"}}), "no_ready_replica"),
        (Script(error_after=0, error={"error": {"message": "gone", "code": "replica_lost"}}), "replica_lost"),
        (Script(status=400, body={"error": {"message": "too long", "code": 400, "type": "BadRequest"}}), None),
        (Script(status=502, body="<html>"), None),
        (Script(close_after_bytes=10), None),
    ],
)
async def test_a_question_that_failed_is_no_part_of_the_conversation(
    engine: FakeEngine, script: Script, code: str | None
) -> None:
    engine.script(script)

    def talk(session: ChatSession) -> tuple[dict[str, str], ...]:
        with pytest.raises((PilothouseError, CommandError)) as refused:
            list(session.ask("hello"))
        assert getattr(refused.value, "code", None) == code
        return session.messages

    assert await in_session(engine, talk) == ()


@pytest.mark.asyncio
async def test_what_was_said_before_the_stream_broke_stays(engine: FakeEngine) -> None:
    engine.script(Script(error_after=2, output_tokens=9, error={"error": {"message": "x", "code": "replica_lost"}}))

    def talk(session: ChatSession) -> tuple[dict[str, str], ...]:
        with pytest.raises(PilothouseError):
            list(session.ask("hello"))
        return session.messages

    assert [each["role"] for each in await in_session(engine, talk)] == ["user", "assistant"]


@pytest.mark.asyncio
async def test_nobody_there(engine: FakeEngine) -> None:
    target = Target(url=f"http://127.0.0.1:{free_port()}", api_key=None)
    with pytest.raises(PilothouseError) as refused:
        ChatSession(target, model=None, system=None)
    assert refused.value.code == "fleet_not_running"
    assert target.url in refused.value.message


@pytest.mark.asyncio
async def test_an_unknown_model_is_refused_by_the_server(engine: FakeEngine) -> None:
    def talk(session: ChatSession) -> str:
        with pytest.raises((PilothouseError, CommandError)) as refused:
            list(session.ask("hello"))
        return str(refused.value)

    assert "gpt-9" in await in_session(engine, talk, model="gpt-9")
