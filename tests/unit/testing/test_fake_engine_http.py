"""The fake engine's HTTP/1.1, byte by byte."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script

BODY = b'{"prompt":"hello","max_tokens":2}'
POST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(EngineOptions(step_base_ms=1, scriptable=True)) as engine:
        yield engine


async def send(engine: FakeEngine, data: bytes) -> bytes:
    """Everything that comes back until the engine closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    writer.write(data)
    answer = await reader.read(-1)
    writer.close()
    return answer


async def response(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of a response with a content-length."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.startswith(b"content-length: "):
            return head, await reader.readexactly(int(line[16:]))
    return head, b""


CLOSING = POST.replace(b"host: x", b"host: x\r\nconnection: close")


@pytest.mark.asyncio
async def test_a_connection_serves_one_request_after_the_other(engine: FakeEngine) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    for _ in range(3):
        writer.write(POST)
        head, body = await response(reader)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection:" not in head
        assert msgspec.json.decode(body)["usage"]["completion_tokens"] == 2
    writer.close()


@pytest.mark.asyncio
async def test_pipelined_requests_are_answered_in_their_order(engine: FakeEngine) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    slow = POST.replace(b"host: x", b'host: x\r\nx-fake-engine: {"delay_s": 0.05}')
    health = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    count = 40  # more than are read ahead
    writer.write(slow + health * count + POST)
    assert (await response(reader))[1].startswith(b'{"id":"cmpl-')
    for _ in range(count):
        assert (await response(reader))[1] == b""
    assert (await response(reader))[1].startswith(b'{"id":"cmpl-')
    writer.close()


@pytest.mark.asyncio
async def test_a_request_arrives_in_pieces_of_one_byte(engine: FakeEngine) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    for at in range(len(POST)):
        writer.write(POST[at : at + 1])
        await writer.drain()
        await asyncio.sleep(0)
    head, _ = await response(reader)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert engine.requests[0].body == BODY
    writer.close()


@pytest.mark.asyncio
async def test_a_chunked_request_body(engine: FakeEngine) -> None:
    chunks = b"".join(b"1\r\n%b\r\n" % bytes([byte]) for byte in BODY) + b"0\r\n\r\n"
    answer = await send(
        engine,
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n" + chunks,
    )
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert engine.requests[0].body == BODY


@pytest.mark.asyncio
async def test_a_client_that_expects_to_be_asked_is_asked(engine: FakeEngine) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    head, body = POST.split(b"\r\n\r\n")
    writer.write(head + b"\r\nExpect: 100-Continue\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await response(reader))[0].startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()


@pytest.mark.asyncio
async def test_head_gives_the_head_only(engine: FakeEngine) -> None:
    answer = await send(engine, b"HEAD /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body == b""
    assert b"content-type: application/json" in head
    assert b"content-length: 0" not in head


@pytest.mark.asyncio
async def test_http_1_0_gets_no_chunks_and_an_end(engine: FakeEngine) -> None:
    body = b'{"prompt":"hello","max_tokens":2,"stream":true}'
    answer = await send(engine, b"POST /v1/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    head, _, events = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert events.startswith(b"data: {")
    assert events.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 70_000, b"431"),
        (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"400"),
    ],
)
@pytest.mark.asyncio
async def test_what_is_not_http_is_refused(engine: FakeEngine, data: bytes, status: bytes) -> None:
    answer = await send(engine, data)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"connection: close" in answer


@pytest.mark.asyncio
async def test_a_refusal_waits_for_the_answer_before_it(engine: FakeEngine) -> None:
    answer = await send(engine, POST + b"nonsense\r\n\r\n")
    first, second = answer.index(b"HTTP/1.1 200"), answer.index(b"HTTP/1.1 400")
    assert first < second


@pytest.mark.asyncio
async def test_an_idle_connection_is_closed() -> None:
    async with FakeEngine(EngineOptions(step_base_ms=1, keep_alive_timeout_s=0.02)) as engine:
        answer = await send(engine, POST)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection: close" not in answer


@pytest.mark.asyncio
async def test_a_stream_is_one_chunk_an_event(engine: FakeEngine) -> None:
    body = b'{"prompt":"hello","max_tokens":3,"stream":true}'
    request = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
    answer = await send(engine, request % (len(body), body))
    _, _, rest = answer.partition(b"\r\n\r\n")
    events = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        events.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    assert len(events) == 3 + 1 + 1
    assert events[-2:] == [b"data: [DONE]\n\n", b""]


@pytest.mark.parametrize("cut", [0, 1, 20, 200])
@pytest.mark.asyncio
async def test_a_response_is_cut_after_exactly_so_many_bytes(engine: FakeEngine, cut: int) -> None:
    whole = await send(engine, CLOSING)
    engine.script(Script(close_after_bytes=cut))
    answer = await send(engine, CLOSING)
    assert len(answer) == cut < len(whole)


@pytest.mark.asyncio
async def test_a_reset_is_a_reset(engine: FakeEngine) -> None:
    engine.script(Script(close_after_bytes=0, reset=True))
    with pytest.raises(ConnectionResetError):
        await send(engine, POST)


@pytest.mark.asyncio
async def test_split_bytes_are_the_same_bytes(engine: FakeEngine) -> None:
    engine.script(Script(split=(1, 7, 2), text="words"))
    answer = await send(engine, CLOSING)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head
    assert msgspec.json.decode(body)["choices"][0]["text"] == "words"


@pytest.mark.asyncio
async def test_an_upgrade_is_not_taken(engine: FakeEngine) -> None:
    answer = await send(engine, b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
