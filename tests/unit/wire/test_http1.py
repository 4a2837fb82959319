"""Requests and responses as HTTP/1.1 says, and nothing that two parsers could read in two ways."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.wire.http1 import (
    MAX_PIPELINED_REQUESTS,
    MAX_RESPONSE_HEAD_BYTES,
    Request,
    RequestParser,
    ResponseError,
    ResponseParser,
    chunk,
    response_head,
)


def parser(*, head: int = 1024, count: int = 20, body: int = 1000) -> RequestParser:
    return RequestParser(max_head_bytes=head, max_header_count=count, max_body_bytes=body)


def fed(*pieces: bytes, **limits: int) -> RequestParser:
    found = parser(**limits)
    for piece in pieces:
        found.feed(piece)
    return found


def one(*pieces: bytes) -> Request:
    found = fed(*pieces)
    assert found.refusal is None
    (request,) = found.complete
    return request


def refused(*pieces: bytes, **limits: int) -> str:
    found = fed(*pieces, **limits)
    assert found.refusal is not None
    assert not found.complete
    return found.refusal.code


def post(headers: bytes = b"", body: bytes = b"", *, version: bytes = b"1.1") -> bytes:
    length = b"content-length: %d\r\n" % len(body)
    return b"POST /v1/x?a=1 HTTP/%b\r\nHost: h\r\n%b%b\r\n%b" % (version, headers, length, body)


class TestRequests:
    def test_a_request_is_taken_apart(self) -> None:
        request = one(post(b"X-One: 1\r\nx-ONE: 2\r\nX-Request-Id: r\r\nTraceparent: t\r\nTracestate: s\r\n", b"abc"))
        assert (request.method, request.path, request.query, request.minor) == (b"POST", b"/v1/x", b"a=1", 1)
        assert request.headers == [(b"x-one", b"1"), (b"x-one", b"2")]
        assert (request.request_id, request.trace) == (b"r", [(b"traceparent", b"t"), (b"tracestate", b"s")])
        assert (request.body, request.keep_alive, request.expects_continue) == (b"abc", True, False)

    @pytest.mark.parametrize(
        ("version", "headers", "keep_alive"),
        [
            (b"1.1", b"", True),
            (b"1.1", b"Connection: close\r\n", False),
            (b"1.0", b"", False),
            (b"1.0", b"Connection: keep-alive\r\n", True),
        ],
    )
    def test_whether_the_connection_is_kept(self, version: bytes, headers: bytes, keep_alive: bool) -> None:
        assert one(post(headers, version=version)).keep_alive is keep_alive

    def test_a_chunked_body_is_put_together(self) -> None:
        head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert one(head + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: 1\r\n\r\n").body == b"abcde"

    def test_a_body_may_say_that_it_is_not_compressed(self) -> None:
        assert one(post(b"Content-Encoding: Identity\r\n", b"abc")).body == b"abc"

    def test_a_body_in_pieces(self) -> None:
        whole = post(body=b"abcdef")
        found = fed(whole[:-4])
        assert found.in_message
        assert found.current is not None
        found.feed(whole[-4:])
        assert found.complete[0].body == b"abcdef"
        assert not found.in_message

    def test_requests_may_come_one_behind_the_other(self) -> None:
        found = fed(post(body=b"a") + post(body=b"b") + post(body=b"c")[:-1])
        assert [request.body for request in found.complete] == [b"a", b"b"]
        assert found.in_message

    def test_but_not_without_bound(self) -> None:
        found = fed(post() * (MAX_PIPELINED_REQUESTS + 1))
        assert len(found.complete) == MAX_PIPELINED_REQUESTS
        assert found.refusal is not None

    def test_expect_continue_is_for_http_1_1(self) -> None:
        assert one(post(b"Expect: 100-Continue\r\n")).expects_continue
        assert not one(post(b"Expect: 100-continue\r\n", version=b"1.0")).expects_continue

    def test_a_body_that_nobody_wants_is_not_kept(self) -> None:
        found = fed(post(body=b"abcdef")[:-4])
        found.discard_body = True
        found.feed(b"cdef")
        assert found.complete[0].body == b"ab"

    def test_an_upgrade_is_an_offer_that_is_not_taken(self) -> None:
        found = fed(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
        assert [request.keep_alive for request in found.complete] == [False]
        found.feed(post())
        assert len(found.complete) == 1, "what follows it may be another protocol"

    def test_a_defect_in_a_callback_is_not_taken_for_a_refusal(self) -> None:
        class Defective(RequestParser):
            def on_url(self, url: bytes) -> None:
                raise LookupError

        found = Defective(max_head_bytes=100, max_header_count=10, max_body_bytes=10)
        with pytest.raises(httptools.HttpParserCallbackError):
            found.feed(post())
        assert found.refusal is None

    def test_after_a_refusal_nothing_is_read(self) -> None:
        found = fed(b"BAD\x00\r\n\r\n")
        found.feed(post())
        assert not found.complete


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"NONSENSE / HTTP/1.1\r\nHost: h\r\n\r\n", "malformed_http"),
        (b"GET / HTTP/1.1\r\n\r\n", "malformed_http"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "malformed_http"),
        (b"GET / HTTP/1.1\r\nHost : h\r\n\r\n", "malformed_http"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\n folded\r\n\r\n", "malformed_http"),
        (b"GET / HTTP/1.1\nHost: h\n\n", "malformed_http"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nA: a\x00b\r\n\r\n", "malformed_http"),
        (post(b"Content-Length: 0\r\n"), "malformed_http"),
        (post(b"Transfer-Encoding: chunked\r\n"), "malformed_http"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", "malformed_http"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\n", "malformed_http"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "malformed_http"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999999999999999\r\n\r\n", "body_too_large"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n", "body_too_large"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "unsupported_transfer_encoding"),
        (post(b"Content-Encoding: gzip\r\n", b"x"), "unsupported_transfer_encoding"),
        (post(b"Expect: more\r\n"), "expectation_failed"),
        (b"GET / HTTP/0.9\r\nHost: h\r\n\r\n", "http_version_not_supported"),
        (b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", "http_version_not_supported"),
        (post(b"A: 1\r\n" * 30), "head_too_large"),
        (post(b"A: %b\r\n" % (b"x" * 2000)), "head_too_large"),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
            "malformed_http",
        ),
    ],
)
def test_what_is_refused(data: bytes, code: str) -> None:
    assert refused(data) == code


def test_a_head_that_never_ends_is_refused_when_it_is_too_large() -> None:
    found = fed(b"GET / HTTP/1.1\r\nHost: h\r\nA: ")
    for _ in range(20):
        found.feed(b"x" * 100)
    assert found.refusal is not None
    assert found.refusal.code == "head_too_large"


def test_heads_cut_by_reads_that_hold_several_are_counted_one_by_one() -> None:
    whole = post(b"X: %b\r\n" % (b"y" * 60)) * 30
    found = fed(*(whole[at : at + 300] for at in range(0, len(whole), 300)), head=200)
    assert found.refusal is None
    assert len(found.complete) == 30


CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("begun", [b"0\r\nX: ", b"0\r\n", b"5;", b"5;name=", b"5\r\nhello\r\n0\r\nX: "])
def test_trailers_and_extensions_that_never_end_are_refused(begun: bytes) -> None:
    """The parser beneath keeps an unfinished trailer, and copies it whenever more of it comes."""
    found = fed(CHUNKED + begun)
    more = b"y: z\r\n" * 10 if begun == b"0\r\n" else b"y" * 60
    reads = 0
    while found.refusal is None and reads < 100:
        found.feed(more)
        reads += 1
    assert found.refusal is not None
    assert found.refusal.code == "malformed_http"
    assert reads * 60 <= 1024 + 16 * 5 + 60


def test_the_smallest_chunks_and_some_trailers_are_not() -> None:
    small = [b"1;a=b\r\nx\r\n"] * 900
    found = fed(CHUNKED, *small, b"0\r\nX: y\r\n", b"Z: " + b"z" * 500, b"\r\n\r\n")
    assert found.refusal is None
    assert found.complete[0].body == b"x" * 900
    found.feed(CHUNKED + b"0\r\n")
    found.feed(b"\r\n" + CHUNKED)  # the end of one body, and a head
    assert (found.refusal, len(found.complete)) == (None, 2)


def test_a_chunked_body_that_grows_too_large_is_refused() -> None:
    found = fed(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", body=10)
    codes = []
    for _ in range(2):
        found.feed(b"8\r\nabcdefgh\r\n")
        codes.append(found.refusal.code if found.refusal is not None else None)
    assert codes == [None, "body_too_large"]


class TestTheSameHeadAgain:
    def test_the_request_is_the_last_one_with_another_body(self) -> None:
        found = parser()
        found.feed(post(b"A: 1\r\n", b"abc"))
        first = found.complete.popleft()
        again = found.again(post(b"A: 1\r\n", b"other"))
        assert again is first
        assert first.body == b"other"
        assert not found.complete

    @pytest.mark.parametrize(
        "headers",
        [b"X-Request-Id: r\r\n", b"Traceparent: t\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n"],
    )
    def test_heads_that_are_of_one_message_are_parsed_each_time(self, headers: bytes) -> None:
        found = parser()
        found.feed(post(headers, b"abc"))
        found.complete.clear()
        assert found.again(post(headers, b"abc")) is None

    def test_nothing_is_taken_in_the_middle_of_something(self) -> None:
        found = parser()
        assert found.again(post()) is None, "nothing is known yet"
        found.feed(post(body=b"abc"))
        assert found.again(post(body=b"abc")) is None, "a request waits"
        found.complete.clear()
        found.feed(post(body=b"abc")[:-1])
        assert found.again(post(body=b"abc")) is None, "a request has begun"
        found.feed(b"c")
        found.complete.clear()
        found.feed(b"\x00")
        assert found.again(post(body=b"abc")) is None, "a request was refused"

    def test_the_limit_on_bodies_holds(self) -> None:
        found = parser(body=5)
        found.feed(post(body=b"abc"))
        found.complete.clear()
        assert found.again(post(body=b"abcdef")) is None
        found.feed(post(body=b"abcdef"))
        assert found.refusal is not None

    @given(st.lists(st.tuples(st.sampled_from([b"", b"A: 1\r\n", b"B: 2\r\n"]), st.binary(max_size=40)), max_size=8))
    def test_with_it_the_same_requests_are_seen_as_without(self, messages: list[tuple[bytes, bytes]]) -> None:
        quick, plain = parser(), parser()
        for headers, body in messages:
            data = post(headers, body)
            plain.feed(data)
            request = quick.again(data)
            if request is None:
                quick.feed(data)
                request = quick.complete.popleft()
            expected = plain.complete.popleft()
            for name in Request.__slots__:
                assert getattr(request, name) == getattr(expected, name)


ANSWER = b"HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: %d\r\n\r\n%b"


class TestResponses:
    def test_a_response_is_taken_apart(self) -> None:
        found = ResponseParser()
        found.feed(ANSWER % (3, b"abc"))
        assert (found.status, found.headers, found.content_length, found.chunked) == (200, [(b"a", b"1")], 3, False)
        assert (found.take_body(), found.complete, found.keep_alive) == (b"abc", True, True)
        assert found.take_body() == b""

    def test_a_chunked_body_comes_in_pieces(self) -> None:
        found = ResponseParser()
        found.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n")
        assert (found.take_body(), found.complete, found.chunked) == (b"abcde", False, True)
        found.feed(b"0\r\nTrailer: 1\r\n\r\n")
        assert (found.take_body(), found.complete, found.headers) == (b"", True, [])

    def test_interim_responses_are_dropped(self) -> None:
        found = ResponseParser()
        found.feed(b"HTTP/1.1 100 Continue\r\nA: 1\r\n\r\n")
        assert found.status == 0
        found.feed(b"HTTP/1.1 204 No Content\r\nB: 2\r\n\r\n")
        assert (found.status, found.headers, found.complete) == (204, [(b"b", b"2")], True)

    def test_the_next_response_begins_afresh(self) -> None:
        found = ResponseParser()
        found.feed(ANSWER % (3, b"abc"))
        found.reset()
        assert (found.status, found.complete, found.headers) == (0, False, [])
        found.feed(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
        assert (found.status, found.complete) == (500, True)

    def test_what_comes_behind_a_response_is_surplus(self) -> None:
        for pieces in ([ANSWER % (3, b"abc") * 2], [ANSWER % (3, b"abc"), b"HTTP/1.1 200 OK\r\n"]):
            found = ResponseParser()
            for piece in pieces:
                found.feed(piece)
            assert found.surplus
            assert (found.status, found.headers, found.take_body()) == (200, [(b"a", b"1")], b"abc")

    def test_a_body_without_a_length_ends_with_the_connection(self) -> None:
        found = ResponseParser()
        found.feed(b"HTTP/1.1 200 OK\r\n\r\nabc")
        assert not found.complete
        assert found.close()
        assert found.complete

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            ANSWER % (5, b"abc"),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            b"HTTP/1.1 2",
        ],
    )
    def test_any_other_body_is_cut_by_it(self, data: bytes) -> None:
        found = ResponseParser()
        found.feed(data)
        assert not found.close()

    def test_a_close_after_the_end_changes_nothing(self) -> None:
        found = ResponseParser()
        found.feed(ANSWER % (0, b""))
        assert found.close()

    @pytest.mark.parametrize(
        "data",
        [
            b"SSH-2.0\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: " + b"x" * (MAX_RESPONSE_HEAD_BYTES + 1),
            b"HTTP/1.1 200 OK\r\nA: " + b"x" * (MAX_RESPONSE_HEAD_BYTES + 1) + b"\r\n\r\n",
            b"HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 099 None\r\nContent-Length: 0\r\n\r\n",
        ],
    )
    def test_what_is_not_http_is_an_error(self, data: bytes) -> None:
        with pytest.raises(ResponseError):
            ResponseParser().feed(data)

    def test_trailers_that_never_end_are_an_error(self) -> None:
        found = ResponseParser()
        found.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ")
        for _ in range(2):
            found.feed(b"y" * (MAX_RESPONSE_HEAD_BYTES // 2))
        with pytest.raises(ResponseError):
            found.feed(b"y")

    def test_chunks_that_come_apart_from_their_sizes_are_none(self) -> None:
        found = ResponseParser()
        found.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(25_000):
            found.feed(b"5\r\n")
            found.feed(b"hello\r\n")
            assert found.take_body() == b"hello"
        for _ in range(2):
            found.feed(b"3\r\nabc\r\n")
            assert found.take_body() == b"abc"

    def test_the_same_head_again_gives_the_body_at_once(self) -> None:
        found = ResponseParser()
        assert found.again(ANSWER % (3, b"abc")) is None
        found.feed(ANSWER % (3, b"abc"))
        assert found.again(ANSWER % (3, b"abc")) is None, "this response is not taken yet"
        found.reset()
        assert found.again(ANSWER % (4, b"abcd")) == b"abcd"
        assert (found.status, found.headers, found.complete, found.keep_alive) == (200, [(b"a", b"1")], True, True)
        found.reset()
        assert found.again(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n") is None

    @pytest.mark.parametrize(
        "data",
        [
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
            b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        ],
    )
    def test_only_plain_heads_are_learned(self, data: bytes) -> None:
        found = ResponseParser()
        found.feed(data)
        found.reset()
        assert found.again(data) is None


def test_a_head_and_a_chunk_are_written() -> None:
    assert response_head(404, [(b"a", b"1")]) == b"HTTP/1.1 404 Not Found\r\na: 1\r\n\r\n"
    assert response_head(299, []) == b"HTTP/1.1 299 -\r\n\r\n"
    assert chunk(b"x" * 17) == b"11\r\n" + b"x" * 17 + b"\r\n"
