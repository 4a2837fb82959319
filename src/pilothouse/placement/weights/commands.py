"""Commands that fetch: run to their end, heard line by line, and ended with their group when nobody waits any more."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping, Sequence

_CREDENTIALS = re.compile(r"://[^/\s@]+@")
_LINE_END = re.compile(rb"[\r\n]+")
_CHUNK = 64 * 1024


class Command:
    """A running command. `lines` is what it says; `status` is set when that has ended."""

    def __init__(self, process: asyncio.subprocess.Process, output: asyncio.StreamReader) -> None:
        self._process = process
        self._output = output
        self.status: int | None = None

    async def lines(self) -> AsyncIterator[str]:
        """Its output and errors, a line each, credentials in URLs blotted out. Read it to the end."""
        rest = b""
        while chunk := await self._output.read(_CHUNK):
            *lines, rest = _LINE_END.split(rest + chunk)
            for line in lines:
                yield _text(line)
        if rest:
            yield _text(rest)
        self.status = await self._process.wait()


@contextlib.asynccontextmanager
async def run(argv: Sequence[str], env: Mapping[str, str]) -> AsyncIterator[Command]:
    """Start a command in a process group of its own, which does not outlive the block."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        yield Command(process, process.stdout)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()


def _text(line: bytes) -> str:
    return _CREDENTIALS.sub("://***@", line.decode("utf-8", "replace").rstrip())
