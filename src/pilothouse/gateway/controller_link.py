"""The worker's line to the controller: snapshots in, suspicions out. Losing it changes nothing but the news."""

import asyncio
import logging
import os
from collections.abc import Callable

from pilothouse.model.control import ReplicaSuspected, SnapshotPublished, WorkerJoined
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.ids import ReplicaId
from pilothouse.wire import control_channel
from pilothouse.wire.control_channel import ControlChannelError

RECONNECT_S = 0.2
"""A new controller is heard within a fifth of a second; a missing one costs five connects a second."""

_READ_BYTES = 256 * 1024

log = logging.getLogger("pilothouse.gateway")


class ControllerLink:
    """Keeps a connection to the controller's socket for as long as the worker lives."""

    def __init__(self, socket_path: str, worker: int, apply: Callable[[FleetSnapshot], None]) -> None:
        self._path = socket_path
        self._worker = worker
        self._apply = apply
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
            writer.write(control_channel.encode(WorkerJoined(index=self._worker, pid=os.getpid())))
            self._writer = writer
            log.info("controller joined")
            decoder = control_channel.Decoder()
            while data := await reader.read(_READ_BYTES):
                for message in decoder.feed(data):
                    if isinstance(message, SnapshotPublished):
                        self._apply(message.snapshot)
            log.warning("controller lost; serving on from the last snapshot")
        finally:
            self._writer = None
            writer.close()

    def report(self, replica: ReplicaId, reason: str, silent: bool) -> None:
        """Tell the controller that something is wrong with a replica. Lost if there is no controller."""
        if self._writer is not None:
            message = ReplicaSuspected(replica=replica, reason=reason, silent=silent)
            self._writer.write(control_channel.encode(message))
