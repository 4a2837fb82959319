import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from pilothouse.controller import engine_client as engine_client_module
from pilothouse.controller.engine_client import EngineClient, ProbeResult
from pilothouse.engines.base import EngineGauge
from pilothouse.engines.registry import driver
from pilothouse.model.fleet import Endpoint
from pilothouse.model.ids import DeploymentName, ModelName
from pilothouse.model.spec import DeploymentSpec, EngineSpec
from pilothouse.testing.processes import free_port

pytestmark = pytest.mark.asyncio

FAKE = driver("fake")
LLAMACPP = driver("llamacpp")
DEPLOYMENT = DeploymentSpec(name=DeploymentName("a"), model=ModelName("m"), engine=EngineSpec(name="fake"), replicas=1)


@pytest_asyncio.fixture
async def client() -> AsyncIterator[EngineClient]:
    client = EngineClient()
    yield client
    await client.close()


class Engine:
    """Answers each path with a status and a body, and keeps the heads of what it was asked."""

    def __init__(self, answers: dict[str, tuple[int, bytes]]) -> None:
        self.answers = answers
        self.heads: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            status, body = self.answers[head.split()[1]]
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object], base_path: str = ""
) -> AsyncIterator[Endpoint]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)  # type: ignore[arg-type]
    port = server.sockets[0].getsockname()[1]
    try:
        yield Endpoint(host="127.0.0.1", port=port, base_path=base_path, authorization="Bearer secret")
    finally:
        server.close()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, ProbeResult(ready=True, listening=True)),
        (503, ProbeResult(ready=False, listening=True, detail="loading")),
        (401, ProbeResult(ready=False, listening=True, detail="GET /health was answered with 401")),
        (302, ProbeResult(ready=False, listening=True, detail="GET /health was answered with 302")),
    ],
)
async def test_a_probe_goes_by_the_status(client: EngineClient, status: int, expected: ProbeResult) -> None:
    async with listening(Engine({"/health": (status, b"")}).serve) as endpoint:
        assert await client.probe(FAKE, endpoint) == expected


async def test_a_probe_carries_the_replicas_key_and_its_base_path(client: EngineClient) -> None:
    engine = Engine({"/openai/health": (200, b"")})
    async with listening(engine.serve, base_path="/openai") as endpoint:
        assert (await client.probe(FAKE, endpoint)).ready
    assert "authorization: bearer secret" in engine.heads[0].lower()


async def test_nobody_listens(client: EngineClient) -> None:
    result = await client.probe(FAKE, Endpoint(host="127.0.0.1", port=free_port()))
    assert (result.ready, result.listening) == (False, False)
    assert result.detail


async def test_one_that_takes_the_connection_and_says_nothing(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client_module, "PROBE_TIMEOUT_S", 0.05)
    done = asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    async with listening(stall) as endpoint:
        result = await client.probe(FAKE, endpoint)
        done.set()
    assert result == ProbeResult(ready=False, listening=False, detail="no answer within 0.05 s")


async def test_one_that_closes_at_once(client: EngineClient) -> None:
    async with listening(lambda reader, writer: writer.close()) as endpoint:
        result = await client.probe(FAKE, endpoint)
    assert (result.ready, result.listening) == (False, False)
    assert result.detail


async def test_one_that_does_not_speak_http(client: EngineClient) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        writer.close()

    async with listening(babble) as endpoint:
        assert not (await client.probe(FAKE, endpoint)).listening


async def test_gauges_are_read_from_both_pages(client: EngineClient) -> None:
    metrics = b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n"
    slots = b'[{"n_ctx": 100, "is_processing": true, "n_prompt_tokens": 50}]'
    async with listening(Engine({"/metrics": (200, metrics), "/slots": (200, slots)}).serve) as endpoint:
        assert await client.gauges(LLAMACPP, DEPLOYMENT, endpoint) == {
            EngineGauge.REQUESTS_RUNNING: 2,
            EngineGauge.REQUESTS_WAITING: 1,
            EngineGauge.KV_USAGE_RATIO: 0.5,
        }


async def test_what_one_page_tells_holds_without_the_other(client: EngineClient) -> None:
    metrics = b"llamacpp:requests_processing 2\n"
    async with listening(Engine({"/metrics": (200, metrics), "/slots": (501, b"no")}).serve) as endpoint:
        assert await client.gauges(LLAMACPP, DEPLOYMENT, endpoint) == {EngineGauge.REQUESTS_RUNNING: 2}
    async with listening(Engine({"/metrics": (200, metrics)}).serve) as endpoint:
        assert await client.gauges(LLAMACPP, DEPLOYMENT, endpoint) == {EngineGauge.REQUESTS_RUNNING: 2}


async def test_no_gauges_from_one_that_is_gone_or_has_none(client: EngineClient) -> None:
    gone = Endpoint(host="127.0.0.1", port=free_port())
    assert await client.gauges(FAKE, DEPLOYMENT, gone) == {}
    assert await client.gauges(driver("openai"), DEPLOYMENT, gone) == {}
    async with listening(Engine({"/metrics": (404, b"vllm:num_requests_running 1")}).serve) as endpoint:
        assert await client.gauges(FAKE, DEPLOYMENT, endpoint) == {}


async def test_a_page_without_end_is_cut(client: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_client_module, "_MAX_BODY_BYTES", 64 * 1024)

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"vllm:num_requests_running 1\n" * 1024)
                await writer.drain()
        writer.close()

    async with listening(flood) as endpoint:
        assert EngineGauge.REQUESTS_RUNNING in await client.gauges(FAKE, DEPLOYMENT, endpoint)


async def test_an_address_of_version_six_is_written_in_brackets(client: EngineClient) -> None:
    result = await client.probe(FAKE, Endpoint(host="::1", port=free_port()))
    assert not result.listening
    assert "Invalid" not in result.detail
