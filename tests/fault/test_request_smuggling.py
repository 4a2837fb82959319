"""Requests on whose end two servers could disagree: refused and closed, or exactly one, here and at the engine."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from data_plane import ENGINE_KEY, KEY, MODEL, Wire, data_plane, snapshot
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine

pytestmark = pytest.mark.asyncio

BODY = b'{"model":"%b","messages":[{"role":"user","content":"hello"}],"max_tokens":2}' % MODEL.encode()
SMUGGLED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b"
    % (
        KEY.encode(),
        len(BODY),
        BODY,
    )
)
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
TE = b"Transfer-Encoding: chunked\r\n"


def post(headers: bytes, body: bytes = BODY, *, line: bytes = b"POST /v1/chat/completions HTTP/1.1") -> bytes:
    return b"%b\r\nHost: h\r\nAuthorization: Bearer %b\r\n%b\r\n%b" % (line, KEY.encode(), headers, body)


REFUSED = {
    "te and cl": post(TE + LENGTH, CHUNKED),
    "cl and te": post(LENGTH + TE, CHUNKED),
    "te and cl 0": post(TE + b"Content-Length: 0\r\n", CHUNKED),
    "two lengths": post(LENGTH * 2),
    "two different lengths": post(LENGTH + b"Content-Length: 3\r\n"),
    "a list of lengths": post(b"Content-Length: %d, %d\r\n" % (len(BODY), len(BODY))),
    "a signed length": post(b"Content-Length: +%d\r\n" % len(BODY)),
    "a negative length": post(b"Content-Length: -1\r\n"),
    "a hexadecimal length": post(b"Content-Length: 0x10\r\n"),
    "a length with a space inside": post(b"Content-Length: 1 0\r\n"),
    "an empty length": post(b"Content-Length: \r\n"),
    "a length beyond 64 bits": post(b"Content-Length: 99999999999999999999\r\n"),
    "a length with an underscore": post(b"Content-Length: 1_0\r\n"),
    "te in other words": post(b"Transfer-Encoding: xchunked\r\n", CHUNKED),
    "te with identity": post(b"Transfer-Encoding: chunked, identity\r\n", CHUNKED),
    "te with gzip": post(b"Transfer-Encoding: gzip, chunked\r\n", CHUNKED),
    "te in quotes": post(b'Transfer-Encoding: "chunked"\r\n', CHUNKED),
    "te with a parameter": post(b"Transfer-Encoding: chunked;q=1\r\n", CHUNKED),
    "te twice": post(TE * 2, CHUNKED),
    "te with a vertical tab": post(b"Transfer-Encoding: \x0bchunked\r\n", CHUNKED),
    "te in http/1.0": post(TE, CHUNKED, line=b"POST /v1/chat/completions HTTP/1.0"),
    "a space before the colon": post(b"Content-Length : %d\r\n" % len(BODY)),
    "te, a space before the colon": post(LENGTH + b"Transfer-Encoding : chunked\r\n"),
    "a header without a colon": post(LENGTH + b"X-Broken\r\n"),
    "an empty header name": post(LENGTH + b": x\r\n"),
    "a folded header": post(b"X: a\r\n b\r\n" + LENGTH),
    "a folded length": post(b"Content-Length:\r\n %d\r\n" % len(BODY)),
    "a bare line feed in the head": post(LENGTH).replace(b"Host: h\r\n", b"Host: h\n", 1),
    "a bare carriage return in a value": post(b"X: a\rb\r\n" + LENGTH),
    "a bare carriage return as a line end": post(LENGTH).replace(b"Host: h\r\n", b"Host: h\r", 1),
    "a nul in a value": post(b"X: a\x00b\r\n" + LENGTH),
    "a nul in a name": post(b"X\x00: a\r\n" + LENGTH),
    "a control character in a name": post(b"X\x7f: a\r\n" + LENGTH),
    "a name that is no token": post(b"X(y): a\r\n" + LENGTH),
    "a chunk size of no digits": post(TE, b"\r\n\r\n0\r\n\r\n"),
    "a chunk size with a sign": post(TE, b"+5\r\nhello\r\n0\r\n\r\n"),
    "a chunk size with 0x": post(TE, b"0x5\r\nhello\r\n0\r\n\r\n"),
    "a chunk size beyond 64 bits": post(TE, b"fffffffffffffffff\r\nx\r\n"),
    "a chunk longer than its size": post(TE, b"3\r\nhello\r\n0\r\n\r\n"),
    "a chunk size that ends in a bare line feed": post(TE, b"5\nhello\r\n0\r\n\r\n"),
    "a chunk that ends in a bare line feed": post(TE, b"5\r\nhello\n0\r\n\r\n"),
    "a chunk size with a space": post(TE, b"5 \r\nhello\r\n0\r\n\r\n"),
    "a chunk extension that ends in a bare line feed": post(TE, b"5;a\nhello\r\n0\r\n\r\n"),
    "a chunk extension with a bare carriage return": post(TE, b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
    "a chunk extension with a line end in quotes": post(TE, b'5;a="x\r\ny"\r\nhello\r\n0\r\n\r\n'),
    "a chunk size that ends in a bare carriage return": post(TE, b"5\rhello\r\n0\r\n\r\n"),
    "a chunk without its end": post(TE, b"5\r\nhello0\r\n\r\n"),
    "a chunk that ends in a carriage return and something else": post(TE, b"5\r\nhello\rX0\r\n\r\n"),
    "a chunk size with an underscore": post(TE, b"0_5\r\nhello\r\n0\r\n\r\n"),
    "a chunk size with a space in front": post(TE, b" 5\r\nhello\r\n0\r\n\r\n"),
    "a negative chunk size": post(TE, b"-1\r\nhello\r\n0\r\n\r\n"),
    "a last chunk that ends in bare line feeds": post(TE, b"5\r\nhello\r\n0\n\n"),
    "a trailer that ends in a bare line feed": post(TE, CHUNKED[:-2] + b"X: y\n\r\n"),
    "a folded trailer": post(TE, CHUNKED[:-2] + b"X: y\r\n z\r\n\r\n"),
    "te among the trailers": post(TE, CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"),
    "te behind an empty element": post(b"Transfer-Encoding: ,chunked\r\n", CHUNKED),
    "te before an empty element": post(b"Transfer-Encoding: chunked,\r\n", CHUNKED),
    "te that is empty": post(b"Transfer-Encoding: \r\n" + LENGTH),
    "te of identity with a length": post(b"Transfer-Encoding: identity\r\n" + LENGTH),
    "te on a folded line": post(b"Transfer-Encoding:\r\n chunked\r\n", CHUNKED),
    "te with a space behind": post(b"Transfer-Encoding: chunked \r\n", CHUNKED),
    "a length with an exponent": post(b"Content-Length: 1e2\r\n"),
    "a length with a no-break space": post(b"Content-Length: \xa0%d\r\n" % len(BODY)),
    "a head that ends in a bare line feed": post(LENGTH).replace(b"\r\n\r\n", b"\r\n\n", 1),
    "a head that ends in a bare carriage return": post(LENGTH).replace(b"\r\n\r\n", b"\r\n\r", 1),
    "a space in front of the request line": b" " + post(LENGTH),
    "a space in front of the first header": post(LENGTH).replace(b"Host", b" Host", 1),
    "a method in small letters": post(LENGTH, line=b"post /v1/chat/completions HTTP/1.1"),
    "a protocol in small letters": post(LENGTH, line=b"POST /v1/chat/completions http/1.1"),
    "a version of two digits": post(LENGTH, line=b"POST /v1/chat/completions HTTP/1.10"),
    "a space behind the version": post(LENGTH, line=b"POST /v1/chat/completions HTTP/1.1 "),
    "a nul in the target": post(LENGTH, line=b"POST /v1/chat/completions\x00 HTTP/1.1"),
    "an authority as the target": post(LENGTH, line=b"POST engine:80 HTTP/1.1"),
    "more headers than anyone has": post(b"X: y\r\n" * 200 + LENGTH),
    "a header larger than anyone has": post(b"X: " + b"y" * 40_000 + b"\r\n" + LENGTH),
    "a length among the trailers": post(TE, CHUNKED[:-2] + b"Content-Length: 3\r\n\r\n"),
    "two hosts": post(b"Host: other\r\n" + LENGTH),
    "no host": post(LENGTH).replace(b"Host: h\r\n", b"", 1),
    "http/0.9": b"GET /v1/models\r\n\r\n",
    "an http/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a version that is none": post(LENGTH, line=b"POST /v1/chat/completions HTTP/1.x"),
    "a tab in the request line": post(LENGTH, line=b"POST\t/v1/chat/completions\tHTTP/1.1"),
    "a space in the target": post(LENGTH, line=b"POST /v1/chat completions HTTP/1.1"),
    "connect": b"CONNECT engine:80 HTTP/1.1\r\nHost: engine\r\n\r\n",
    "an upgrade with a body": post(b"Connection: upgrade\r\nUpgrade: h2c\r\n" + LENGTH),
}
"""Each is followed by a whole request, which must not be seen as one."""

ONE_REQUEST = {
    "a plain request": post(LENGTH),
    "te in capitals": post(b"TRANSFER-ENCODING: CHUNKED\r\n", CHUNKED),
    "chunk sizes with zeros in front": post(TE, b"000%x\r\n%b\r\n000\r\n\r\n" % (len(BODY), BODY)),
    "chunk extensions": post(TE, b"%x;name=value\r\n%b\r\n0;last\r\n\r\n" % (len(BODY), BODY)),
    "trailers": post(TE, CHUNKED[:-2] + b"X: y\r\nAuthorization: Bearer other\r\n\r\n"),
    "two spaces in the request line": post(LENGTH, line=b"POST  /v1/chat/completions HTTP/1.1"),
    "many chunks": post(TE, b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"),
    "a length with zeros in front": post(b"Content-Length: 000%d\r\n" % len(BODY)),
    "a length with spaces around": post(b"Content-Length: \t %d \t\r\n" % len(BODY)),
    "a length named by connection": post(b"Connection: content-length\r\n" + LENGTH),
    "te named by connection": post(b"Connection: transfer-encoding\r\n" + TE, CHUNKED),
    "an empty line in front": b"\r\n" + post(LENGTH),
    "an empty line of a bare line feed in front": b"\n" + post(LENGTH),
    "a body with what looks like a request in it": post(
        b"Content-Length: %d\r\n" % len(BODY), BODY, line=b"POST /v1/chat/completions?x=HTTP/1.1 HTTP/1.1"
    ),
    "names with an underscore": post(b"Content_Length: 3\r\nTransfer_Encoding: chunked\r\n" + LENGTH),
}


async def answers(wire: Wire, timeout_s: float = 0.5) -> list[int]:
    """The statuses of all answers until the connection ends or falls silent."""
    found: list[int] = []
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        while True:
            async with asyncio.timeout(timeout_s):
                found.append((await wire.answer()).status)
    return found


def engine() -> FakeEngine:
    return FakeEngine(EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.001))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("apart", [False, True], ids=["in one read", "in two"])
async def test_what_could_be_read_in_two_ways_is_refused_and_the_connection_ends(
    name: str, apart: bool, tmp_path: Path
) -> None:
    async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
        wire = await plane.send(REFUSED[name] if apart else REFUSED[name] + SMUGGLED)
        if apart:
            await asyncio.sleep(0.02)
            wire.writer.write(SMUGGLED)
        statuses = await answers(wire)
        assert len(statuses) == 1, f"one answer, and nothing for the request behind it: {statuses}"
        assert 400 <= statuses[0] < 600
        assert not upstream.requests, "nothing of it reaches an engine"
        with contextlib.suppress(ConnectionError):
            assert await wire.reader.read() == b"", "the connection is closed"


@pytest.mark.parametrize("name", ONE_REQUEST)
async def test_what_is_one_request_is_one_for_the_engine_too(name: str, tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
        wire = await plane.send(ONE_REQUEST[name] + SMUGGLED)
        assert await answers(wire) == [200, 200]
        first, second = upstream.requests
        for seen in (first, second):
            assert seen.body == BODY
            assert seen.header("content-length") == str(len(BODY))
            assert seen.header("transfer-encoding") is None
            assert [header for header, _ in seen.headers].count("content-length") == 1


CLOSING = {
    "http/1.0": post(LENGTH, line=b"POST /v1/chat/completions HTTP/1.0"),
    "connection: close": post(b"Connection: close\r\n" + LENGTH),
    "an upgrade without a body": b"GET /livez HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
}


@pytest.mark.parametrize("name", CLOSING)
async def test_nothing_behind_the_last_request_of_a_connection_is_one(name: str, tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
        wire = await plane.send(CLOSING[name] + SMUGGLED)
        assert await answers(wire) == [200]
        assert len(upstream.requests) == (0 if b"livez" in CLOSING[name] else 1)


@pytest.mark.parametrize("second", [BODY, BODY[:-1] + b" }", BODY.replace(b"hello", b"POST / HTTP/1.1\\r\\n")])
@pytest.mark.parametrize("pipelined", [False, True])
async def test_http_1_0_that_keeps_alive_is_two_requests(second: bytes, pipelined: bool, tmp_path: Path) -> None:
    """The second has the head of the first, but for its length."""
    async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
        line = b"POST /v1/chat/completions HTTP/1.0"
        first, other = (
            post(b"Connection: keep-alive\r\nContent-Length: %d\r\n" % len(body), body, line=line)
            for body in (BODY, second)
        )
        wire = await plane.send(first + other if pipelined else first)
        assert (await wire.answer()).status == 200
        if not pipelined:
            wire.writer.write(other)
        assert (await wire.answer()).status == 200
        assert [seen.body for seen in upstream.requests] == [BODY, second]


HEADS = {
    "one byte more than its length": lambda head: head % len(BODY) + BODY + b"P",
    "one byte less than its length": lambda head: head % (len(BODY) + 1) + BODY,
    "a length with a sign": lambda head: head.replace(b"%d", b"+%d") % len(BODY) + BODY,
    "a length in words": lambda head: head.replace(b"%d", b"%d, %d") % (len(BODY), len(BODY)) + BODY,
    "a second length": lambda head: head.replace(b"%d", b"%d\r\nContent-Length: 3") % len(BODY) + BODY,
    "te beside the length": lambda head: head.replace(b"%d", b"%d\r\nTransfer-Encoding: chunked") % len(BODY) + CHUNKED,
}


@pytest.mark.parametrize("name", HEADS)
async def test_a_head_that_is_nearly_the_one_before_it_is_judged_anew(name: str, tmp_path: Path) -> None:
    """A head that was seen before is not parsed again: only the very same one may be taken for it."""
    async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
        wire = await plane.send(post(LENGTH))
        assert await answers(wire, 0.1) == [200]
        head = post(b"Content-Length: %d\r\n", b"")
        wire.writer.write(HEADS[name](head))
        later = await answers(wire, 0.1)
        assert later in ([], [400], [200])
        assert [seen.body for seen in upstream.requests] == [BODY] * (1 + later.count(200))
        assert (later == [200]) is (name == "one byte more than its length")


@pytest.mark.parametrize("value", ["x\r\nX-Evil: 1", "x\nX-Evil: 1", "x\rX-Evil: 1", "x\x00"])
async def test_no_header_reaches_an_engine_that_the_client_did_not_send_as_one(value: str, tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
        wire = await plane.send(post(b"X-Request-Id: %b\r\n" % value.encode("latin-1") + LENGTH))
        await answers(wire, 0.2)
        for seen in upstream.requests:
            assert seen.header("x-evil") in (None, "1")
            assert (
                seen.header(
                    "x-request-id",
                )
                != value
            )


async def test_a_request_that_is_never_finished_reaches_no_engine(tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(snapshot([upstream.port]), tmp_path) as plane:
        for raw in (post(LENGTH, BODY[:-1]), post(TE, CHUNKED[:-1]), post(TE, CHUNKED[:-5])):
            wire = await plane.send(raw)
            await asyncio.sleep(0.02)
            wire.abort()
        await asyncio.sleep(0.05)
        assert not upstream.requests
