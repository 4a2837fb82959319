"""A million generated inputs through the HTTP and SSE parsers: no crash, no hang, nothing that depends on the cuts.

Inputs are mutations of a corpus of real messages: bytes changed, removed, repeated, spliced from others, and cut into
reads anywhere. Requests that the parser accepts are held against a second reading of the same bytes in other pieces; a
message whose head is known is held against a parser that knows none; events come out whole and in order.
"""

import itertools
import random
import time

from benchmarks.bars.report import Bar, main, tell
from pilothouse.model.requests import Route
from pilothouse.wire import inference_body, openai
from pilothouse.wire.event_relay import EventRelay
from pilothouse.wire.http1 import RequestParser, ResponseError, ResponseParser
from pilothouse.wire.sse import EventCutter, split

INPUTS = 1_000_000
SEED = 20261201
SLOWEST_S = 0.5  # a parser that needs longer than this for a kilobyte hangs

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ph_x\r\n"
REQUESTS = (
    HEAD + b"Content-Length: 13\r\n\r\n" + b'{"model":"m"}',
    HEAD + b"Content-Length: 13\r\n\r\n" + b'{"model":"n"}',
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nd\r\n" + b'{"model":"m"}' + b"\r\n0\r\n\r\n",
    HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\nGET /livez HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
)
RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndata: \r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nKeep-Alive: timeout=5\r\n\r\n",
    b"HTTP/1.0 500 No\r\nConnection: close\r\n\r\nbad",
)
EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"h\xc3\xa9"}}],"usage":null}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\r\n\r\n',
    b"event: message_start\ndata: {}\n\n: ping\n\ndata: [DONE]\n\n",
    b'data: {"error":{"message":"m","code":500}}\r\r',
)
BODIES = (
    b'{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":5}',
    b'{ "model" : "m" , "messages" : [{"role":"user","content":"\\u00e9\\ud83d\\udea2"}] }',
    b'{"model":"m","a":1,"a":2}',
)
_ODD = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b":",
    b" ",
    b"\t",
    b"0",
    b"-1",
    b"chunked",
    b"\r\n\r\n",
    b'"',
    b"}",
    b"\xff",
    b"\\u0000",
)


class FindingError(Exception):
    """What must not be."""


def measure() -> list[Bar]:
    """All of it, in one process."""
    chance = random.Random(SEED)
    checks = (
        (_check_request, REQUESTS, 0.45),
        (_check_response, RESPONSES, 0.2),
        (_check_events, EVENTS, 0.25),
        (_check_body, BODIES, 0.1),
    )
    findings: list[str] = []
    slowest = 0.0
    done = 0
    for check, corpus, share in checks:
        for number in range(int(INPUTS * share)):
            data = _mutated(chance, corpus)
            began = time.perf_counter()
            try:
                check(chance, data)
            except Exception as error:
                findings.append(f"{check.__name__} {data!r}: {type(error).__name__}: {error}")
            slowest = max(slowest, time.perf_counter() - began)
            done += 1
            if number % 100_000 == 0:
                tell(f"{done} inputs, {len(findings)} findings")
    for finding in findings[:10]:
        tell(finding[:500])
    return [
        Bar(
            name="generated inputs through the parsers: crashes, hangs, disagreements",
            limit="0 of 1,000,000",
            measured=f"{len(findings)} of {done:,}, the slowest {slowest * 1e3:.1f} ms",
            passed=not findings and done >= INPUTS and slowest < SLOWEST_S,
            details={"seed": SEED},
        )
    ]


def _mutated(chance: random.Random, corpus: tuple[bytes, ...]) -> bytes:
    """One or two messages of the corpus with up to four changes."""
    data = bytearray(chance.choice(corpus))
    if chance.random() < 0.4:
        data += chance.choice(corpus)
    for _ in range(chance.randrange(5)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            data[at:at] = chance.choice(_ODD)
        elif kind == 1:
            del data[at : at + chance.randrange(1, 8)]
        elif kind == 2 and at < len(data):
            data[at] = chance.randrange(256)
        elif kind == 3:
            data[at:at] = data[at : at + chance.randrange(1, 30)]
        else:
            other = chance.choice(corpus)
            begin = chance.randrange(len(other))
            data[at:at] = other[begin : begin + chance.randrange(1, 40)]
    return bytes(data)


def _pieces(chance: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(4)))
    edges = [0, *cuts, len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges) if begin < end]


def _request_parser() -> RequestParser:
    return RequestParser(max_head_bytes=4096, max_header_count=50, max_body_bytes=4096)


def _requests(pieces: list[bytes], *, known: bool) -> list[tuple[object, ...]]:
    parser = _request_parser()
    found: list[tuple[object, ...]] = []
    for piece in pieces:
        request = parser.again(piece) if known else None
        if request is not None:
            found.append((request.method, request.path, request.query, request.body, tuple(request.headers)))
            continue
        parser.feed(piece)
        while parser.complete:
            request = parser.complete.popleft()
            found.append((request.method, request.path, request.query, request.body, tuple(request.headers)))
    return found


def _check_request(chance: random.Random, data: bytes) -> None:
    whole = _requests([data], known=False)
    cut = _requests(_pieces(chance, data), known=False)
    if whole != cut:
        raise FindingError("what is seen depends on how it is cut")
    good = REQUESTS[0]
    if _requests([good, data], known=True) != _requests([good], known=False) + whole:
        raise FindingError("a known head reads it differently")


def _check_response(chance: random.Random, data: bytes) -> None:
    def read(pieces: list[bytes]) -> tuple[object, ...]:
        parser = ResponseParser()
        body = b""
        try:
            for piece in pieces:
                parser.feed(piece)
                body += parser.take_body()
            ended = parser.close()
        except ResponseError:
            return ("error",)
        # Not `surplus`: llhttp passes over line ends behind a message, which are surplus in a read of their own.
        return (parser.status, tuple(parser.headers), body, ended)

    whole, cut = read([data]), read(_pieces(chance, data))
    if whole != cut and ("error",) not in (whole, cut):
        raise FindingError(f"what is seen depends on how it is cut: {whole} {cut}")


def _check_events(chance: random.Random, data: bytes) -> None:
    cutter = EventCutter()
    out = b"".join(cutter.feed(piece) for piece in _pieces(chance, data)) + cutter.close()
    if out != data:
        raise FindingError("bytes of the stream were lost or added")
    if b"".join(split(data)) != data:
        raise FindingError("splitting loses bytes")
    relay = EventRelay(Route.CHAT_COMPLETIONS, hides_usage=chance.random() < 0.5, hides_progress=True)
    for piece in _pieces(chance, data):
        relay.feed(piece)
    relay.close()
    openai.usage_of_answer(data)


def _check_body(chance: random.Random, data: bytes) -> None:
    inference_body.read(data, Route.CHAT_COMPLETIONS)


if __name__ == "__main__":
    main("data_plane", measure())
