"""`pilothouse chat` in a terminal, and in a pipe."""

import asyncio
import os
import select
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from pilothouse.cli.exits import Exit
from pilothouse.model.ids import FleetName
from pilothouse.store.credentials import store_key
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script
from pilothouse.testing.processes import wait_until

if TYPE_CHECKING:
    from tests.conftest import Pilothouse


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(EngineOptions(step_base_ms=1, scriptable=True, api_key="secret")) as engine:
        yield engine


class Terminal:
    """A terminal with the conversation in it."""

    def __init__(self, pilothouse: "Pilothouse", *arguments: str) -> None:
        self.shown = ""
        self._program, self._terminal = pilothouse.start_in_terminal("chat", *arguments)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    async def see(self, text: str) -> None:
        """Wait until the text is shown, and take everything up to it."""
        while text not in self.shown:
            readable, _, _ = await asyncio.to_thread(select.select, [self._terminal], [], [], 10.0)
            assert readable, f"no {text!r} in {self.shown!r}"
            self.shown += os.read(self._terminal, 65536).decode()
        self.shown = self.shown.partition(text)[2]

    async def exit_code(self) -> int:
        """The exit code, once the program has ended."""
        try:
            return await asyncio.to_thread(self._program.wait)
        finally:
            os.close(self._terminal)


@pytest.fixture
def with_key(pilothouse: "Pilothouse") -> "Pilothouse":
    """The program with the engine's key."""
    pilothouse.env["PILOTHOUSE_API_KEY"] = "secret"
    return pilothouse


@pytest.mark.asyncio
async def test_a_conversation_in_a_terminal(engine: FakeEngine, with_key: "Pilothouse") -> None:
    engine.script(Script(text="first answer"), Script(output_tokens=1000, stall_after=3), Script(text="third answer"))
    terminal = Terminal(with_key, "--url", engine.url)
    await terminal.see("Ctrl-D the conversation")
    await terminal.see("> ")
    terminal.type("hello\n")
    await terminal.see("first answer")
    await terminal.see("> ")
    terminal.type("for ever\n")
    await wait_until(lambda: engine.state().running == 1, "the engine answers")
    terminal.type("\x03")
    await terminal.see("(ended)")
    await wait_until(lambda: engine.state().running == 0, "the engine has stopped")
    await terminal.see("> ")
    terminal.type("\x03")  # at the prompt it only gives up the line
    await terminal.see("> ")
    terminal.type("again\n")
    await terminal.see("third answer")
    await terminal.see("> ")
    terminal.type("\x04")
    assert await terminal.exit_code() == Exit.OK


@pytest.mark.asyncio
async def test_an_error_does_not_end_the_conversation(engine: FakeEngine, with_key: "Pilothouse") -> None:
    engine.script(Script(status=503, body={"error": {"message": "wait", "code": "no_ready_replica"}}))
    terminal = Terminal(with_key, "--url", engine.url)
    await terminal.see("> ")
    terminal.type("hello\n")
    await terminal.see("pilothouse explain no_ready_replica")
    await terminal.see("> ")
    terminal.type("\x04")
    assert await terminal.exit_code() == Exit.OK


@pytest.mark.asyncio
async def test_what_a_model_says_does_not_steer_the_terminal(engine: FakeEngine, with_key: "Pilothouse") -> None:
    engine.script(Script(text="\x1b]0;title\x07red"))
    terminal = Terminal(with_key, "hello", "--url", engine.url)
    await terminal.see("red")
    assert await terminal.exit_code() == Exit.OK
    assert "\x1b" not in terminal.shown


@pytest.mark.asyncio
async def test_one_answer_in_a_pipe(engine: FakeEngine, with_key: "Pilothouse") -> None:
    engine.script(Script(text="the answer"))
    arguments = ("chat", "sum it up:", "--url", f"{engine.url}/v1", "--system", "Be brief.")
    done = await asyncio.to_thread(with_key.attempt, *arguments, stdin="a long text\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the answer\n", "")
    [request] = [each for each in engine.requests if each.path.endswith("/chat/completions")]
    assert request.json()["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "sum it up:\n\na long text"},
    ]


@pytest.mark.asyncio
async def test_nothing_to_ask_is_an_error(engine: FakeEngine, with_key: "Pilothouse") -> None:
    done = await asyncio.to_thread(with_key.attempt, "chat", "--url", engine.url)
    assert done.returncode == Exit.ERROR
    assert done.stderr.startswith("error: there is nothing to ask\n")


@pytest.mark.asyncio
async def test_the_stored_key_is_not_sent_to_an_address_that_somebody_typed(
    engine: FakeEngine, pilothouse: "Pilothouse"
) -> None:
    store_key(pilothouse.paths().credentials, FleetName("default"), "secret")
    refused = await asyncio.to_thread(pilothouse.attempt, "chat", "hello", "--url", engine.url)
    assert refused.returncode == Exit.ERROR
    assert [each.header("authorization") for each in engine.requests] == [None]
    answered = await asyncio.to_thread(pilothouse.attempt, "chat", "hello", "--url", engine.url, "--fleet", "default")
    assert answered.returncode == Exit.OK
