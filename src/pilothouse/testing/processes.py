"""Real processes in tests: start one, wait for what it says, and end it whatever happens."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from pilothouse.engines.base import REPLICA_KEY_VARIABLE

_KEPT_LINES = 200
_KILL_AFTER_S = 5.0
_LAST_WORDS_S = 1.0
_POLL_S = 0.01


class ProcessFailedError(AssertionError):
    """A process ended, or did not say what was waited for, in time. The message has its last lines."""


class TestProcess:
    """A child in its own process group, with its output (stdout and stderr together) read as it comes."""

    __test__ = False  # not a test case, though a test would call it that

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._changed = asyncio.Event()
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its group."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; `None` while it runs."""
        return self._process.returncode

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines of its output."""
        return tuple(self._lines)

    async def wait_for_line(self, pattern: str, timeout_s: float = 10.0) -> re.Match[str]:
        """The first line that matches, those before the call included. Raises ProcessFailedError."""
        expression = re.compile(pattern)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._changed.clear()
                    for line in self._lines:
                        if match := expression.search(line):
                            return match
                    if self._reading.done():
                        raise self._failure(f"ended with {self.returncode} before it said {pattern!r}")
                    await self._changed.wait()
        except TimeoutError:
            raise self._failure(f"did not say {pattern!r} within {timeout_s} s") from None

    async def wait(self, timeout_s: float = 10.0) -> int:
        """The exit code, once it has ended. Raises ProcessFailedError."""
        code = await self._exit_code(timeout_s)
        if code is None:
            raise self._failure(f"did not end within {timeout_s} s")
        # Its last words; a child of its own that lives on can keep the pipe open.
        await asyncio.wait((self._reading,), timeout=_LAST_WORDS_S)
        return code

    def send(self, number: signal.Signals) -> None:
        """A signal to the process, if it is there."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def end(self) -> int:
        """SIGTERM, then SIGKILL to its whole group; the exit code."""
        if self.returncode is None:
            self.send(signal.SIGTERM)
            await self._exit_code(_KILL_AFTER_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        code = await self._process.wait()
        await self._reading
        return code

    async def _exit_code(self, timeout_s: float) -> int | None:
        # Process.wait() returns only when the pipe is closed as well, which children of the process can prevent.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self.returncode is None:
            if loop.time() > deadline:
                break
            await asyncio.sleep(_POLL_S)
        return self.returncode

    async def _read(self) -> None:
        stream = self._process.stdout
        while stream is not None and (line := await stream.readline()):
            self._lines.append(line.decode("utf-8", "replace").rstrip("\n"))
            self._changed.set()
        await self._process.wait()
        self._changed.set()

    def _failure(self, what: str) -> ProcessFailedError:
        tail = "\n".join(tuple(self._lines)[-20:])
        return ProcessFailedError(f"process {self.pid} {what}; its last lines:\n{tail}")


@contextlib.asynccontextmanager
async def running_process(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()
) -> AsyncIterator[TestProcess]:
    """A child process that has ended, with its group, when the block is left.

    `env` replaces the environment; `pass_fds` are descriptors that it inherits.
    """
    child = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=None if env is None else dict(env),
        pass_fds=tuple(pass_fds),
        start_new_session=True,
    )
    process = TestProcess(child)
    try:
        yield process
    finally:
        await process.end()


@contextlib.asynccontextmanager
async def running_fake_engine(
    *options: str, key: str | None = None, timeout_s: float = 15.0
) -> AsyncIterator[tuple[TestProcess, str]]:
    """A fake engine as a process of its own on a free port: the process, and its URL without a path."""
    argv = [sys.executable, "-P", "-m", "pilothouse.testing.fake_engine", "--port=0", *options]
    env = dict(os.environ)
    env.pop(REPLICA_KEY_VARIABLE, None)
    if key is not None:
        env[REPLICA_KEY_VARIABLE] = key
    async with running_process(argv, env=env) as process:
        match = await process.wait_for_line(r"^fake engine: .* at (http://\S+)$", timeout_s)
        yield process, match[1]


async def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 5.0) -> None:
    """Return once `condition()` is true. Raises AssertionError, which says `what` did not come about."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition():
        if loop.time() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        await asyncio.sleep(_POLL_S)


def free_port() -> int:
    """A port of the loopback address that was free just now. Port 0 is better where the listener can tell its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
