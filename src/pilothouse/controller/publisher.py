"""The controller's end of the fleet's Unix socket: snapshots out to the workers, suspicions in."""

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from pilothouse.model.control import (
    ControlMessage,
    DirectoryChanged,
    DirectoryStored,
    LeasesAnswered,
    LeasesReported,
    ReplicaSuspected,
    SnapshotPublished,
    UsageAnswered,
    UsageAsked,
    WorkerJoined,
)
from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.leases import LeaseAnswers, LeaseBatch
from pilothouse.model.tenants import DirectoryChange
from pilothouse.wire import control_channel
from pilothouse.wire.control_channel import ControlChannelError

_READ_BYTES = 64 * 1024
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid

_logger = logging.getLogger(__name__)


class JoinedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that listens."""

    index: int
    pid: int


class _Connection:
    """One worker's connection. A slow one gets the latest snapshot when it is ready for it, not each in between."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.news = asyncio.Event()
        self.worker: JoinedWorker | None = None
        self.has_snapshot = False  # the one published last has been sent
        self.messages: deque[ControlMessage] = deque()

    def tell(self, message: ControlMessage) -> None:
        """Send this, after what is to be sent before it."""
        self.messages.append(message)
        self.news.set()


class Publisher:
    """Sends the whole snapshot on joining and on each change, and of the tenants what a worker does not know yet.

    Only this user's processes are heard. `on_suspicion` is called with what workers suspect. `missed` says what has
    changed since a version of the directory; `None`: too much, the worker has to read the file. `on_leases` answers a
    worker's report on shared limits, `on_usage` a tenant's question after its usage; it never raises.
    """

    def __init__(
        self,
        path: Path,
        on_suspicion: Callable[[ReplicaSuspected], None],
        missed: Callable[[int], list[DirectoryChange] | None] = lambda version: [],
        on_leases: Callable[[LeaseBatch], LeaseAnswers] | None = None,
        on_usage: Callable[[UsageAsked], Awaitable[UsageAnswered]] | None = None,
    ) -> None:
        self._path = path
        self._on_suspicion = on_suspicion
        self._missed = missed
        self._on_leases = on_leases
        self._on_usage = on_usage
        self._snapshot: FleetSnapshot | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._server: asyncio.Server | None = None

    @property
    def workers(self) -> tuple[JoinedWorker, ...]:
        """The workers that listen now, by index."""
        joined = [connection.worker for connection in self._connections.values() if connection.worker is not None]
        return tuple(sorted(joined, key=lambda worker: worker.index))

    async def start(self) -> None:
        """Listen, in the place of an earlier controller. Raises PilothouseError state_unreadable."""
        try:
            self._server = await asyncio.start_unix_server(self._accept, sock=_listening_socket(self._path))
        except OSError as error:
            raise PilothouseError("state_unreadable", f"{self._path}: {error.strerror or error}") from error

    def publish(self, snapshot: FleetSnapshot) -> None:
        """Send this to all that listen and to those that will."""
        self._snapshot = snapshot
        for connection in self._connections.values():
            connection.has_snapshot = False
            connection.news.set()

    def publish_change(self, change: DirectoryChange) -> None:
        """Tell all that have joined that tenants or keys have changed."""
        for connection in self._connections.values():
            if connection.worker is not None:
                connection.tell(DirectoryChanged(change=change))

    async def close(self) -> None:
        """Listen and speak no more."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer)
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)

    async def _serve(self, connection: _Connection) -> None:
        try:
            if _peer_uid(connection.writer) != os.getuid():
                _logger.warning("a process of another user connected to the control socket and was refused")
                return
            connection.news.set()
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(self._send(connection))
                await self._receive(connection, group)
                sending.cancel()
        except* (OSError, ControlChannelError) as failures:
            _logger.warning("a worker's connection failed", extra={"reason": str(failures.exceptions[0])})
        finally:
            connection.writer.close()

    async def _send(self, connection: _Connection) -> None:
        while True:
            await connection.news.wait()
            connection.news.clear()
            if self._snapshot is not None and not connection.has_snapshot:
                connection.has_snapshot = True
                connection.writer.write(control_channel.encode(SnapshotPublished(snapshot=self._snapshot)))
                await connection.writer.drain()
            while connection.messages:
                connection.writer.write(control_channel.encode(connection.messages.popleft()))
                await connection.writer.drain()

    async def _receive(self, connection: _Connection, group: asyncio.TaskGroup) -> None:
        decoder = control_channel.Decoder()
        while data := await connection.reader.read(_READ_BYTES):
            for message in decoder.feed(data):
                match message:
                    case WorkerJoined(index=index, pid=pid, directory=version):
                        connection.worker = JoinedWorker(index=index, pid=pid)
                        _logger.info("worker joined", extra={"worker": index, "pid": pid})
                        missed = self._missed(version)
                        for change in missed or ():
                            connection.tell(DirectoryChanged(change=change))
                        if missed is None:
                            connection.tell(DirectoryStored())
                    case ReplicaSuspected():
                        self._on_suspicion(message)
                    case LeasesReported(number=number, batches=batches):
                        if self._on_leases is not None:
                            answers = tuple(map(self._on_leases, batches))
                            connection.tell(LeasesAnswered(number=number, answers=answers))
                    case UsageAsked():
                        if self._on_usage is not None:
                            group.create_task(_answer(connection, self._on_usage(message)))
                    case _:
                        raise ControlChannelError("a worker sent what only a controller sends")


async def _answer(connection: _Connection, answer: Awaitable[UsageAnswered]) -> None:
    connection.tell(await answer)


def _listening_socket(path: Path) -> socket.socket:
    """Bound with mode 0600 from its first moment."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    peer = writer.get_extra_info("socket")
    _, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)
