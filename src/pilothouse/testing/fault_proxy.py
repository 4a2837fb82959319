"""A TCP proxy that misbehaves on request, for tests between two parties that speak over a network.

    async with FaultProxy("127.0.0.1", engine.port) as proxy:
        proxy.faults = Faults(to_client=Line(cut_after=100, then="reset"))
        ...                                          # connect to proxy.port

Faults are those of connections made afterwards; `cut()` ends the ones that are open.
"""

import asyncio
import socket
import struct
from types import TracebackType
from typing import Literal, Self, cast

import msgspec

_READ_BYTES = 64 * 1024
_PIECES_PER_SECOND = 20  # of a throttled direction
_LINGER_ZERO = struct.pack("ii", 1, 0)

Ending = Literal["close", "reset", "half_close", "stall"]
"""`close` ends both directions in order, `reset` with a TCP reset, `half_close` only this direction; `stall` keeps
the connection and passes nothing on in this direction any more."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What one direction does. The default passes everything on.

    `delay_s` before every piece; `bytes_per_second` at most, on average; written in pieces of `write_size` bytes, each
    by itself (1 splits at every byte). After exactly `cut_after` bytes of a connection comes `then`; 0 is instead of
    the first byte.
    """

    delay_s: float = 0.0
    bytes_per_second: float | None = None
    write_size: int | None = None
    cut_after: int | None = None
    then: Ending = "close"


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection suffers. `drop_at_accept` ends it before anything passes, and does not reach the target."""

    to_server: Line = Line()
    to_client: Line = Line()
    drop_at_accept: Literal["close", "reset"] | None = None


class FaultProxy:
    """Listens on a free port of the loopback address and connects each client to the target.

    `connections` counts accepted ones, `bytes_to_server` and `bytes_to_client` what was passed on. A target that
    refuses makes the client see a reset.
    """

    def __init__(self, target_host: str, target_port: int, *, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.connections = 0
        self.bytes_to_server = 0
        self.bytes_to_client = 0
        self._target = (target_host, target_port)
        self._server: asyncio.Server | None = None
        self._open: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def host(self) -> str:
        """Where it listens."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port

    @property
    def url(self) -> str:
        """`http://host:port`, for targets that speak HTTP."""
        return f"http://{self.host}:{self.port}"

    @property
    def open_connections(self) -> int:
        """Connections that have not ended."""
        return len(self._open)

    def cut(self, *, reset: bool = False) -> None:
        """End all open connections now."""
        for link in tuple(self._open):
            link.end(reset=reset)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.faults.drop_at_accept is not None:
            _close(writer, reset=self.faults.drop_at_accept == "reset")
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        faults = self.faults
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _close(writer, reset=True)
            return
        link = _Link(writer, server_writer)
        self._open.add(link)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, server_writer, faults.to_server, link, upwards=True))
                group.create_task(self._pass_on(server_reader, writer, faults.to_client, link, upwards=False))
        finally:
            self._open.discard(link)
            link.end(reset=False)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line, link: "_Link", *, upwards: bool
    ) -> None:
        left = line.cut_after
        try:
            while data := await reader.read(_READ_BYTES):
                data = data[:left]
                for piece in _pieces(data, line):
                    await _pace(line, len(piece))
                    writer.write(piece)
                    await writer.drain()
                    self._count(len(piece), upwards=upwards)
                    if line.write_size is not None:
                        await asyncio.sleep(0)  # so that the next piece is a write of its own
                if left is not None:
                    left -= len(data)
                    if left == 0:
                        await self._finish(line.then, reader, writer, link)
                        return
            _write_eof(writer)
        except OSError:
            # One side is gone: the other hears of it in the same way.
            link.end(reset=True)

    async def _finish(
        self, ending: Ending, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link"
    ) -> None:
        if ending == "half_close":
            _write_eof(writer)
        elif ending != "stall":
            link.end(reset=ending == "reset")
            return
        while await reader.read(_READ_BYTES):
            pass  # nothing of it is passed on, but the end of the connection must be noticed

    def _count(self, size: int, *, upwards: bool) -> None:
        if upwards:
            self.bytes_to_server += size
        else:
            self.bytes_to_client += size


class _Link:
    """Both ends of one connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._writers = (client, server)

    def end(self, *, reset: bool) -> None:
        for writer in self._writers:
            _close(writer, reset=reset)


def _close(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    transport = cast("asyncio.Transport", writer.transport)
    if not reset:
        transport.close()
    elif not transport.is_closing():
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        transport.abort()


def _write_eof(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        writer.write_eof()


def _pieces(data: bytes, line: Line) -> list[bytes]:
    size = line.write_size or len(data) or 1
    if line.bytes_per_second is not None:
        size = min(size, max(1, int(line.bytes_per_second / _PIECES_PER_SECOND)))
    return [data[at : at + size] for at in range(0, len(data), size)]


async def _pace(line: Line, size: int) -> None:
    wait = line.delay_s
    if line.bytes_per_second is not None:
        wait += size / line.bytes_per_second
    if wait > 0:
        await asyncio.sleep(wait)
