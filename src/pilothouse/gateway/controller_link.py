"""The worker's line to the controller: snapshots and tenants in, suspicions out.

Losing it changes nothing but the news.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence

from pilothouse.gateway.callers import Callers
from pilothouse.model.control import (
    DirectoryChanged,
    DirectoryStored,
    LeasesAnswered,
    LeasesReported,
    ReplicaSuspected,
    SnapshotPublished,
    WorkerJoined,
)
from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.ids import ReplicaId
from pilothouse.model.leases import LeaseAnswers, LeaseBatch
from pilothouse.wire import control_channel
from pilothouse.wire.control_channel import ControlChannelError

RECONNECT_S = 0.2
"""A new controller is heard within a fifth of a second; a missing one costs five connects a second."""

LEASES_TIMEOUT_S = 0.25
"""How long a request may wait for a lease; a healthy controller needs a hundredth of it."""

_READ_BYTES = 256 * 1024

log = logging.getLogger("pilothouse.gateway")


class ControllerLink:
    """Keeps a connection to the controller's socket for as long as the worker lives."""

    def __init__(
        self,
        socket_path: str,
        worker: int,
        apply: Callable[[FleetSnapshot], None],
        callers: Callers,
        reread: Callable[[], Awaitable[None]],
    ) -> None:
        self._path = socket_path
        self._worker = worker
        self._apply = apply
        self._callers = callers
        self._reread = reread
        self._awaited: dict[int, asyncio.Future[tuple[LeaseAnswers, ...]]] = {}
        self._reports = 0
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        """Connect, listen, connect again; until cancelled."""
        while True:
            try:
                await self._listen()
            except (OSError, ControlChannelError) as error:
                log.debug("no controller", extra={"reason": str(error)})
            await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            self._join(writer)
            self._writer = writer
            log.info("controller joined")
            decoder = control_channel.Decoder()
            while data := await reader.read(_READ_BYTES):
                for message in decoder.feed(data):
                    match message:
                        case SnapshotPublished(snapshot=snapshot):
                            self._apply(snapshot)
                        case DirectoryChanged(change=change):
                            if not self._callers.change(change):
                                self._join(writer)
                        case DirectoryStored():
                            await self._reread()
                            await asyncio.sleep(RECONNECT_S)  # the file may be as old as it was
                            self._join(writer)
                        case LeasesAnswered(number=number, answers=answers):
                            awaited = self._awaited.get(number)
                            if awaited is not None and not awaited.done():
                                awaited.set_result(answers)
            log.warning("controller lost; serving on from the last snapshot")
        finally:
            self._writer = None
            writer.close()

    async def exchange(self, batches: Sequence[LeaseBatch]) -> tuple[LeaseAnswers, ...]:
        """Report leases to the controller, the authority of this host.

        Raises:
            PilothouseError: limits_unavailable, when there is no controller or no answer in time.
        """
        if self._writer is None:
            raise PilothouseError("limits_unavailable", "there is no controller")
        self._reports += 1
        number = self._reports
        answer: asyncio.Future[tuple[LeaseAnswers, ...]] = asyncio.get_running_loop().create_future()
        self._awaited[number] = answer
        try:
            self._writer.write(control_channel.encode(LeasesReported(number=number, batches=tuple(batches))))
            async with asyncio.timeout(LEASES_TIMEOUT_S):
                return await answer
        except (TimeoutError, OSError) as error:
            raise PilothouseError("limits_unavailable", "the controller does not answer") from error
        finally:
            del self._awaited[number]

    def _join(self, writer: asyncio.StreamWriter) -> None:
        joined = WorkerJoined(index=self._worker, pid=os.getpid(), directory=self._callers.version)
        writer.write(control_channel.encode(joined))

    def report(self, replica: ReplicaId, reason: str, silent: bool) -> None:
        """Tell the controller that something is wrong with a replica. Lost if there is no controller."""
        if self._writer is not None:
            message = ReplicaSuspected(replica=replica, reason=reason, silent=silent)
            self._writer.write(control_channel.encode(message))
