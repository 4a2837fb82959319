"""A gateway worker as a process of its own, with everything it is started from."""

import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from data_plane import PEPPER, Wire, connect, directory_of_tests
from pilothouse.model.boot import WorkerBoot
from pilothouse.model.ids import FleetName
from pilothouse.model.spec import GatewayLimits
from pilothouse.store.directory_file import write_directory
from pilothouse.testing.processes import TestProcess, running_process


class WorkerHome:
    """The files and sockets of one worker, and the supervisor's end of its lifeline."""

    def __init__(self, directory: Path, *, limits: GatewayLimits | None = None) -> None:
        self.directory = directory
        self.snapshot = directory / "snapshot.json"
        self.pepper = directory / "pepper"
        self.boards = directory / "board"
        self.boards.mkdir()
        self.pepper.write_bytes(PEPPER)
        write_directory(directory / "tenants.bin", directory_of_tests())
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.lifeline_read, self.lifeline = os.pipe()
        self.wires: list[Wire] = []
        self.boot = WorkerBoot(
            fleet=FleetName("tests"),
            index=3,
            listen_fds=(self.listener.fileno(),),
            lifeline_fd=self.lifeline_read,
            snapshot_path=str(self.snapshot),
            control_socket=str(directory / "control.sock"),
            board_dir=str(self.boards),
            pepper_path=str(self.pepper),
            tenants_path=str(directory / "tenants.bin"),
            revocations_path=str(directory / "revoked"),
            spool_dir=str(directory / "spool"),
            limits=limits or GatewayLimits(),
        )

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[TestProcess]:
        boot = self.directory / "boot.json"
        boot.write_bytes(msgspec.json.encode(self.boot))
        argv = [sys.executable, "-P", "-m", "pilothouse.gateway.worker", str(boot)]
        async with running_process(argv, pass_fds=(*self.boot.listen_fds, self.lifeline_read)) as process:
            try:
                yield process
            finally:
                for wire in self.wires:
                    wire.abort()

    async def send(self, data: bytes) -> Wire:
        self.wires.append(await connect(self.port, data))
        return self.wires[-1]

    async def ready(self) -> tuple[int, str]:
        wire = await self.send(b"GET /readyz?verbose HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
        answer = await wire.answer()
        return answer.status, answer.body.decode()

    def close(self) -> None:
        self.listener.close()
        for fd in (self.lifeline, self.lifeline_read):
            with contextlib.suppress(OSError):
                os.close(fd)
