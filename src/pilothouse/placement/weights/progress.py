"""How long work tells how far it is, and how it is stopped in the middle."""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class ProgressSink(Protocol):
    """Told of progress, in the thread of the event loop."""

    def update(self, phase: str, done: int, total: int | None) -> None:
        """`done` of `total` bytes of a phase (`download`, `unpack`, `check`); `total` is `None` while unknown."""


class Silent:
    """For when nobody watches."""

    def update(self, phase: str, done: int, total: int | None) -> None:
        """Drop it."""


class _Stopped(Exception):  # noqa: N818, it is no error
    """Ends work in a thread whose awaiter was cancelled."""


class _Relay:
    """Takes progress from a thread to the loop's, and on the way back the wish to stop."""

    def __init__(self, sink: ProgressSink, loop: asyncio.AbstractEventLoop) -> None:
        self._sink = sink
        self._loop = loop
        self.stopped = threading.Event()

    def update(self, phase: str, done: int, total: int | None) -> None:
        if self.stopped.is_set():
            raise _Stopped
        self._loop.call_soon_threadsafe(self._sink.update, phase, done, total)


async def in_thread(work: Callable[[ProgressSink], Result], progress: ProgressSink) -> Result:
    """Run blocking work that reports to the sink it is given.

    When cancelled, the work ends at its next report, and only then does this return: nothing goes on behind the back
    of whoever cancelled.
    """
    loop = asyncio.get_running_loop()
    relay = _Relay(progress, loop)
    future = loop.run_in_executor(None, work, relay)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        relay.stopped.set()
        await asyncio.wait({future})
        future.exception()  # looked at, so that nobody warns of it
        raise
