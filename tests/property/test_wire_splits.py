"""However the bytes are cut, the parsers see the same; whatever the bytes are, the readers answer and do not raise."""

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse.model.errors import Refusal
from pilothouse.model.requests import Route
from pilothouse.wire import inference_body
from pilothouse.wire.http1 import RequestParser, ResponseParser
from pilothouse.wire.sse import EventCutter, spans_with, split

REQUESTS = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX: 1\r\nContent-Length: 4\r\n\r\nabcd"
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX: 1\r\nContent-Length: 11\r\n\r\nhello there"
    b"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"
    b"GET /c?q=1 HTTP/1.1\r\nHost: a\r\n\r\n"
)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % len(data) for cut in cuts}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges) if start < end]


def parsed(parts: list[bytes]) -> list[tuple[bytes, bytes, bytes, list[tuple[bytes, bytes]]]]:
    parser = RequestParser(max_head_bytes=4096, max_header_count=20, max_body_bytes=4096)
    for part in parts:
        parser.feed(part)
    assert parser.refusal is None
    return [(request.method, request.path, request.body, request.headers) for request in parser.complete]


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_requests_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    assert parsed(pieces(REQUESTS, cuts)) == parsed([REQUESTS])


@given(st.binary(max_size=300), st.lists(st.integers(0, 10_000), max_size=4))
def test_no_bytes_break_the_request_parser(data: bytes, cuts: list[int]) -> None:
    parser = RequestParser(max_head_bytes=256, max_header_count=5, max_body_bytes=64)
    for part in pieces(b"POST / HTTP/1.1\r\nHost: a\r\n" + data, cuts):
        parser.feed(part)
    assert all(len(request.body) <= 64 for request in parser.complete)


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_responses_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    data = b"HTTP/1.1 200 OK\r\nA: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    parser = ResponseParser()
    body = b""
    for part in pieces(data, cuts):
        parser.feed(part)
        body += parser.take_body()
    assert (parser.status, parser.headers, body, parser.complete) == (200, [(b"a", b"1")], b"abcde", True)


@given(
    st.lists(st.text("ab:\u00e9", max_size=5).map(lambda text: f"data: {text}"), min_size=1, max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 10_000), max_size=10),
)
def test_events_are_cut_at_their_boundaries(lines: list[str], end: str, cuts: list[int]) -> None:
    stream = "".join(line + end + end for line in lines).encode()
    cutter = EventCutter()
    outs = [cutter.feed(part) for part in pieces(stream, cuts)]
    rest = cutter.close()
    assert b"".join(outs) + rest == stream
    assert rest in (b"", b"\n"), "a stream of whole events leaves nothing behind but half a line end"
    assert all(out.endswith((b"\n\n", b"\r\r", b"\r\n\r\n", b"\r\n\r")) or out == b"\n" for out in outs if out)
    assert b"".join(split(stream)) == stream
    for marker in (b":a", b"b", "\u00e9".encode()):
        assert [stream[start:stop] for start, stop in spans_with(stream, marker)] == [
            event for event in split(stream) if marker in event
        ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.text('ab"\\\u00e9', max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(st.tuples(st.sampled_from(["model", "a", "b", "stream", "\u00e9"]), JSON), max_size=5), st.booleans())
@settings(max_examples=300)
def test_repeated_keys_are_found_exactly(pairs: list[tuple[str, Any]], spaced: bool) -> None:
    colon, comma = (": ", " , ") if spaced else (":", ",")
    dump = (json.JSONEncoder(separators=(",", ":"), ensure_ascii=spaced)).encode
    data = ("{" + comma.join(dump(key) + colon + dump(value) for key, value in pairs) + "}").encode()
    seen: list[str] = []
    json.loads(data, object_pairs_hook=lambda found: seen.__setitem__(slice(None), [key for key, _ in found]))
    found = inference_body.read(data, Route.CHAT_COMPLETIONS)
    repeated = len(set(seen)) < len(seen)
    assert (isinstance(found, Refusal) and found.code == "duplicate_key") == repeated


@given(st.binary(max_size=80))
def test_no_body_breaks_the_reader(data: bytes) -> None:
    assert inference_body.read(data, Route.EMBEDDINGS) is not None
