"""Helpers for real processes in tests."""

import signal
import sys

import pytest

from pilothouse.testing.processes import ProcessFailedError, running_process, wait_until

IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""
HAS_A_CHILD = """
import subprocess
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
child.wait()
"""


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


@pytest.mark.asyncio
async def test_lines_are_waited_for_and_kept() -> None:
    async with running_process(
        python("print('one'); print('two 2', flush=True); import time; time.sleep(60)")
    ) as process:
        assert (await process.wait_for_line(r"two (\d)"))[1] == "2"
        assert (await process.wait_for_line("one"))[0] == "one"
        assert process.lines == ("one", "two 2")


@pytest.mark.asyncio
async def test_a_process_that_ends_too_early_is_told_with_its_last_lines() -> None:
    async with running_process(python("import sys; sys.exit('the reason')")) as process:
        with pytest.raises(ProcessFailedError, match=r"ended with 1 before it said 'ready'(.|\n)*the reason"):
            await process.wait_for_line("ready")
        assert await process.wait() == 1


@pytest.mark.asyncio
async def test_waiting_has_an_end() -> None:
    async with running_process(python("import time; print('up', flush=True); time.sleep(60)")) as process:
        await process.wait_for_line("up")
        with pytest.raises(ProcessFailedError, match="did not say 'never'"):
            await process.wait_for_line("never", timeout_s=0.05)
        with pytest.raises(ProcessFailedError, match="did not end"):
            await process.wait(timeout_s=0.05)
        process.send(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
        process.send(signal.SIGTERM)  # to nobody: no error


@pytest.mark.asyncio
async def test_the_group_of_a_process_ends_with_it() -> None:
    async with running_process(python(HAS_A_CHILD)) as process:
        child = int((await process.wait_for_line(r"\d+"))[0])
    assert process.returncode == -signal.SIGTERM
    await wait_until(lambda: not _alive(child), "the grandchild is gone")


@pytest.mark.asyncio
async def test_a_process_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilothouse.testing.processes._KILL_AFTER_S", 0.05)
    async with running_process(python(IGNORES_SIGTERM)) as process:
        await process.wait_for_line("ready")
    assert process.returncode == -signal.SIGKILL


@pytest.mark.asyncio
async def test_the_environment_can_be_replaced() -> None:
    async with running_process(python("import os; print(sorted(os.environ))"), env={"ONLY": "this"}) as process:
        assert await process.wait() == 0
        assert "'ONLY'" in process.lines[0]
        assert "'PATH'" not in process.lines[0]


@pytest.mark.asyncio
async def test_what_does_not_come_about_is_named() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: a miracle"):
        await wait_until(lambda: False, "a miracle", timeout_s=0.02)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
