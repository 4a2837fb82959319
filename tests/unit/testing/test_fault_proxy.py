"""The fault proxy between a client and an echoing server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pilothouse.testing.fault_proxy import FaultProxy, Faults, Line
from pilothouse.testing.processes import free_port, wait_until


class EchoServer:
    """Sends back what it gets; remembers how each connection ended and the pieces it came in."""

    def __init__(self) -> None:
        self.port = 0
        self.endings: list[str] = []
        self.received = b""
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while data := await reader.read(1000):
                self.received += data
                writer.write(data)
                await writer.drain()
            self.endings.append("eof")
        except ConnectionError:
            self.endings.append("reset")
        finally:
            writer.close()


@pytest_asyncio.fixture
async def server() -> AsyncIterator[EchoServer]:
    echo = EchoServer()
    listener = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.port = listener.sockets[0].getsockname()[1]
    yield echo
    listener.close()


@contextlib.asynccontextmanager
async def through(
    server: EchoServer, faults: Faults
) -> AsyncIterator[tuple[FaultProxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    async with FaultProxy("127.0.0.1", server.port, faults=faults) as proxy:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        yield proxy, reader, writer
        writer.close()


@pytest.mark.asyncio
async def test_without_faults_everything_passes_and_is_counted(server: EchoServer) -> None:
    async with through(server, Faults()) as (proxy, reader, writer):
        data = bytes(range(256)) * 2000
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        assert proxy.open_connections == 1
        writer.write_eof()
        assert await reader.read() == b""
        await wait_until(lambda: proxy.open_connections == 0, "the connection is over")
        assert (proxy.connections, proxy.bytes_to_server, proxy.bytes_to_client) == (1, len(data), len(data))
        assert server.endings == ["eof"]


@pytest.mark.parametrize("after", [0, 1, 5])
@pytest.mark.asyncio
async def test_the_answer_is_cut_after_exactly_so_many_bytes(server: EchoServer, after: int) -> None:
    async with through(server, Faults(to_client=Line(cut_after=after))) as (proxy, reader, writer):
        writer.write(b"abcdefgh")
        assert await reader.read() == b"abcdefgh"[:after]
        assert server.received == b"abcdefgh"
        assert proxy.bytes_to_client == after
        await wait_until(lambda: server.endings == ["eof"], "the server hears of it")


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.asyncio
async def test_the_request_is_cut_after_exactly_so_many_bytes(server: EchoServer, after: int) -> None:
    async with through(server, Faults(to_server=Line(cut_after=after))) as (_, reader, writer):
        writer.write(b"abcdefgh")
        assert await reader.read() == b""
        await wait_until(lambda: server.endings == ["eof"], "the server hears of it")
        assert server.received == b"abcdefgh"[:after]


@pytest.mark.asyncio
async def test_a_cut_can_be_a_reset_for_both(server: EchoServer) -> None:
    async with through(server, Faults(to_client=Line(cut_after=0, then="reset"))) as (_, reader, writer):
        writer.write(b"abc")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await wait_until(lambda: server.endings == ["reset"], "the server hears of it")


@pytest.mark.asyncio
async def test_half_closed_towards_the_client_the_server_still_hears(server: EchoServer) -> None:
    async with through(server, Faults(to_client=Line(cut_after=2, then="half_close"))) as (_, reader, writer):
        writer.write(b"abc")
        assert await reader.read() == b"ab"
        writer.write(b"def")
        await wait_until(lambda: server.received == b"abcdef", "the rest arrives")


@pytest.mark.asyncio
async def test_a_stalled_direction_stays_open_until_it_is_cut(server: EchoServer) -> None:
    async with through(server, Faults(to_client=Line(cut_after=2, then="stall"))) as (proxy, reader, writer):
        writer.write(b"abc")
        assert await reader.readexactly(2) == b"ab"
        writer.write(b"def")
        await wait_until(lambda: server.received == b"abcdef", "the other direction works")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await reader.read()
        proxy.cut()
        assert await reader.read() == b""


@pytest.mark.asyncio
async def test_open_connections_can_be_reset_at_any_time(server: EchoServer) -> None:
    async with through(server, Faults()) as (proxy, reader, writer):
        writer.write(b"abc")
        assert await reader.readexactly(3) == b"abc"
        proxy.cut(reset=True)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await wait_until(lambda: server.endings == ["reset"], "the server hears of it")


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.asyncio
async def test_a_connection_dropped_at_accept_does_not_reach_the_server(server: EchoServer, how: str) -> None:
    faults = Faults(drop_at_accept="reset" if how == "reset" else "close")
    async with through(server, faults) as (proxy, reader, _):
        if how == "reset":
            with pytest.raises(ConnectionResetError):
                await reader.read()
        else:
            assert await reader.read() == b""
        assert (proxy.connections, server.connections) == (1, 0)


@pytest.mark.asyncio
async def test_a_target_that_refuses_is_a_reset() -> None:
    async with FaultProxy("127.0.0.1", free_port()) as proxy:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


@pytest.mark.asyncio
async def test_split_and_throttled_bytes_are_the_same_bytes(server: EchoServer) -> None:
    faults = Faults(to_server=Line(write_size=1), to_client=Line(bytes_per_second=2000, delay_s=0.001))
    async with through(server, faults) as (_, reader, writer):
        writer.write(b"x" * 200 + b"y")
        assert await reader.readexactly(201) == b"x" * 200 + b"y"


@pytest.mark.asyncio
async def test_faults_are_those_of_the_moment_of_connecting(server: EchoServer) -> None:
    async with through(server, Faults()) as (proxy, reader, writer):
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        proxy.faults = Faults(to_client=Line(cut_after=0))
        writer.write(b"b")
        assert await reader.readexactly(1) == b"b"
        second, other = await asyncio.open_connection(proxy.host, proxy.port)
        other.write(b"c")
        assert await second.read() == b""
        other.close()
