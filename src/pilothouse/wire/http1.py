"""HTTP/1.1 on both sides of the gateway: a request parser with limits, a response parser, and heads as bytes.

The grammar is llhttp's (by httptools, in its strict mode): repeated or conflicting lengths, bare line feeds, folded
headers and bad chunk sizes are refused there. What a proxy must refuse beyond the grammar is here.
"""

from collections import deque

import httptools

from pilothouse.model.errors import Refusal
from pilothouse.wire.known_head import KnownHead

MAX_PIPELINED_REQUESTS = 32
"""Complete requests one read may leave waiting; more from one client is not ordinary pipelining."""

MAX_RESPONSE_BYTES_AT_ONCE = 1 << 60
"""What came in one read is in memory already."""

MAX_RESPONSE_HEAD_BYTES = 64 * 1024
"""64 KiB, above every engine's and hosted API's heads; an upstream beyond it is broken."""

MAX_FRAMING_PER_BODY_BYTE = 16
"""Bytes of chunk sizes, extensions and trailers for each byte of a body, beside a head's worth of them: what Go's
reader allows a chunk. A chunk of one byte needs five."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

REASONS: dict[int, bytes] = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    417: b"Expectation Failed",
    422: b"Unprocessable Content",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}

Header = tuple[bytes, bytes]
"""A name in lower case, and a value."""


class Request:
    """One request as it came. `body` is whole once the parser says so; `path` is without the query.

    `headers` are those that a client repeats from request to request, in lower case. What frames this one message
    (host, lengths, expect) has been checked and is not among them, and what names it is in `request_id` and `trace`.
    """

    __slots__ = (
        "body",
        "expects_continue",
        "headers",
        "keep_alive",
        "method",
        "minor",
        "path",
        "query",
        "request_id",
        "trace",
    )

    def __init__(self, method: bytes, target: bytes, minor: int, *, keep_alive: bool) -> None:
        self.method = method
        self.path, _, self.query = target.partition(b"?")
        self.minor = minor
        self.keep_alive = keep_alive
        self.headers: list[Header] = []
        self.request_id: bytes | None = None
        self.trace: list[Header] = []
        self.expects_continue = False
        self.body = b""


_APART = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"expect"}
    | {b"x-request-id", b"traceparent", b"tracestate"}
)
"""Headers that belong to one message; `RequestParser` takes them out."""


class _Refused(Exception):  # noqa: N818 - it carries a refusal out of a callback, nothing is wrong with us
    """Leaves httptools' callbacks; `RequestParser.feed` turns it into `refusal`."""


class RequestParser:
    """Byte pump for what a client sends.

    Try `again` first, when no request is under way; what it does not take is for `feed`.

    After `feed`, complete requests are in `complete` (pop them from the left); `current` is a request whose head is
    whole and whose body is not. When `refusal` is set, the connection cannot be used for further requests: what the
    client meant to send after this point is unknown.
    """

    __slots__ = (
        "_body",
        "_body_bytes",
        "_framing_bytes",
        "_has_length",
        "_headers",
        "_known",
        "_last",
        "_max_body_bytes",
        "_max_head_bytes",
        "_max_header_count",
        "_may_be_large",
        "_parser",
        "_target",
        "_unfinished_head_bytes",
        "_upgraded",
        "complete",
        "current",
        "discard_body",
        "in_message",
        "refusal",
    )

    def __init__(self, *, max_head_bytes: int, max_header_count: int, max_body_bytes: int) -> None:
        self._max_head_bytes = max_head_bytes
        self._max_header_count = max_header_count
        self._max_body_bytes = max_body_bytes
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: list[Header] = []
        self._body: list[bytes] = []
        self._unfinished_head_bytes = 0
        self._may_be_large = False
        self._known = KnownHead()
        self._last: Request | None = None
        self._has_length = False
        self._upgraded = False
        self._body_bytes = 0
        self._framing_bytes = 0
        self.complete: deque[Request] = deque()
        self.current: Request | None = None
        self.in_message = False
        self.discard_body = False
        self.refusal: Refusal | None = None

    def again(self, data: bytes) -> Request | None:
        """The request that `data` is, if it is exactly one, whole, with the same head as the last one.

        It is the last one's object with another body, so call this only when that one's answer has ended. `None` means
        that nothing was taken.
        """
        request = self._last
        if request is None or self.in_message or self.complete or self.refusal is not None:
            return None
        body = self._known.body_of(data, self._max_body_bytes)
        if body is None:
            return None
        request.body = body
        return request

    def feed(self, data: bytes) -> None:
        """Take what the socket gave. Nothing is raised; see `complete`, `current` and `refusal`."""
        if self.refusal is not None or self._upgraded:
            return
        in_head = self.in_message and self.current is None
        starts_message = not self.in_message
        in_body, body_bytes = self.current is not None, self._body_bytes
        done = len(self.complete)
        # A head that came in one small read cannot be too large: the usual case is not measured.
        self._may_be_large = in_head or len(data) > self._max_head_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # An upgrade is an offer that we may ignore (RFC 9110, 7.8), but what follows it is not HTTP for llhttp.
            if self.complete and not _has_body(self._headers):
                self.complete[-1].keep_alive = False
                self._upgraded = True
            else:
                self.complete.clear()
                message = "A request with a body cannot ask for an upgrade."
                self.refusal = Refusal(code="malformed_http", message=message)
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Refused):
                raise
        except httptools.HttpParserInvalidMethodError:
            self.refusal = Refusal(code="malformed_http", message="The request line has no known method.")
        except httptools.HttpParserError as error:
            self.refusal = Refusal(code="malformed_http", message=f"The request is not valid HTTP/1.1: {error}.")
        else:
            if starts_message and not self.in_message and len(self.complete) == done + 1:
                self._learn(data, self.complete[-1])
            elif self.in_message and self.current is None:
                # A header that is not finished reaches no callback, so an unfinished head is counted as it is fed.
                # (One that began behind another request in the same read is counted from the next read on.)
                if len(self.complete) > done:
                    self._unfinished_head_bytes = 0
                else:
                    self._unfinished_head_bytes = len(data) + (self._unfinished_head_bytes if in_head else 0)
                if self._unfinished_head_bytes > self._max_head_bytes:
                    self.refusal = _head_too_large(self._max_head_bytes)
            elif in_body and self.current is not None and len(self.complete) == done:
                # Nor does a trailer that is not finished reach one; and extensions could go on for ever.
                self._framing_bytes += len(data) - (self._body_bytes - body_bytes)
                if self._framing_bytes > self._max_head_bytes + MAX_FRAMING_PER_BODY_BYTE * self._body_bytes:
                    message = "The body has chunk extensions or trailers out of all proportion."
                    self.refusal = Refusal(code="malformed_http", message=message)

    def _learn(self, data: bytes, request: Request) -> None:
        """One whole request came in one read: the next may have the same head."""
        plain = request.keep_alive and not request.expects_continue and not request.trace and request.minor == 1
        if plain and request.request_id is None and self._has_length:
            self._known.learn(data)
            self._last = request
        else:
            self._last = None

    def _refuse(self, refusal: Refusal) -> _Refused:
        self.refusal = refusal
        return _Refused()

    # httptools' callbacks, in the order of a message.

    def on_message_begin(self) -> None:
        """A first byte of a request is there."""
        self.in_message = True
        self._target = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        """A piece of the request target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole header (or trailer, which is dropped: nothing we serve has a use for one)."""
        if self.current is None:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole: check what the grammar does not."""
        parser, headers = self._parser, self._headers
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            message = f"HTTP/{version} is not served; use HTTP/1.1."
            raise self._refuse(Refusal(code="http_version_not_supported", message=message))
        if len(headers) > self._max_header_count:
            message = f"There are more than {self._max_header_count} headers."
            raise self._refuse(Refusal(code="head_too_large", message=message))
        if self._may_be_large and _size(self._target, headers) > self._max_head_bytes:
            raise self._refuse(_head_too_large(self._max_head_bytes))
        minor = 1 if version == "1.1" else 0
        self._has_length = False
        request = Request(parser.get_method(), self._target, minor, keep_alive=parser.should_keep_alive())
        hosts = 0
        for header in headers:
            if header[0] not in _APART:
                request.headers.append(header)
            elif header[0] == b"host":
                hosts += 1
            else:
                self._take_apart(request, *header)
        if hosts > 1 or (hosts == 0 and minor == 1):
            raise self._refuse(Refusal(code="malformed_http", message="HTTP/1.1 needs exactly one host header."))
        self.current = request
        self._body = []
        self._body_bytes = self._framing_bytes = 0

    def _take_apart(self, request: Request, name: bytes, value: bytes) -> None:
        """Note, or check, a header that belongs to this message alone."""
        if name == b"content-length":
            self._has_length = True
            if len(value) > 18 or int(value) > self._max_body_bytes:
                raise self._refuse(_body_too_large(self._max_body_bytes))
        elif name == b"x-request-id":
            request.request_id = value
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked" or request.minor == 0:
                message = f"transfer-encoding: {value.decode('latin-1')} is not understood; use chunked."
                raise self._refuse(Refusal(code="unsupported_transfer_encoding", message=message))
        elif name == b"content-encoding":
            if value.lower() not in (b"", b"identity"):
                message = "A compressed request body is not understood; send it uncompressed."
                raise self._refuse(Refusal(code="unsupported_transfer_encoding", message=message))
        elif name == b"expect":
            if value.lower() != b"100-continue":
                message = f"expect: {value.decode('latin-1')} is not understood; only 100-continue is."
                raise self._refuse(Refusal(code="expectation_failed", message=message))
            request.expects_continue = request.minor == 1
        else:
            request.trace.append((name, value))

    def on_body(self, data: bytes) -> None:
        """A piece of the body, unchunked."""
        self._body_bytes += len(data)
        if self._body_bytes > self._max_body_bytes:
            raise self._refuse(_body_too_large(self._max_body_bytes))
        if not self.discard_body:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """The body is whole."""
        request, body = self.current, self._body
        assert request is not None
        request.body = body[0] if len(body) == 1 else b"".join(body)
        self.current = None
        self.in_message = False
        self._body = []
        if len(self.complete) >= MAX_PIPELINED_REQUESTS:
            message = f"More than {MAX_PIPELINED_REQUESTS} requests were sent without waiting for an answer."
            raise self._refuse(Refusal(code="malformed_http", message=message))
        self.complete.append(request)


def _size(target: bytes, headers: list[Header]) -> int:
    return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)


def _has_body(headers: list[Header]) -> bool:
    return any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in headers)


def _head_too_large(limit: int) -> Refusal:
    return Refusal(code="head_too_large", message=f"The request head is larger than {limit} bytes.")


def _body_too_large(limit: int) -> Refusal:
    return Refusal(code="body_too_large", message=f"The request body is larger than {limit} bytes.")


_WITHOUT_BODY = (204, 304)
"""Answers that end with their head, whatever length it names (RFC 9112, 6.3)."""


class ResponseError(Exception):
    """Raised by `ResponseParser.feed`: the upstream does not speak HTTP/1.1."""


def _head_of_response_too_large() -> ResponseError:
    return ResponseError(f"the head is larger than {MAX_RESPONSE_HEAD_BYTES} bytes")


class ResponseParser:
    """Byte pump for what an engine sends, one response at a time.

    Try `again` first, when a response is awaited and nothing of it has come; what it does not take is for `feed`.

    After `feed`: `status` is 0 until the head is whole; `headers` are in lower case and without the framing, which is
    in `content_length` and `chunked`; `body` holds the pieces of the body that came with this call
    (take them with `take_body`); `complete` says that the response has ended. `reset` makes it ready for the next
    response on the same connection.
    """

    __slots__ = (
        "_head_bytes",
        "_headers_bytes",
        "_interim",
        "_known",
        "_last_headers",
        "_last_status",
        "_own_pieces",
        "_parser",
        "_taken_again",
        "_trailer_bytes",
        "body",
        "chunked",
        "complete",
        "content_length",
        "headers",
        "keep_alive",
        "on_body",
        "status",
        "surplus",
    )

    def __init__(self) -> None:
        self.body: list[bytes] = []
        # httptools' callback for a piece of the body, unchunked. The list's own method: a chunk for each event of a
        # stream comes this way, and a method of ours would cost as much as the rest that is done for the event.
        self.on_body = self.body.append
        self._parser = httptools.HttpResponseParser(self)
        self._known = KnownHead()
        self._last_status = 0
        self._last_headers: list[Header] | None = None
        self._interim = False
        self._taken_again = False
        self._head_bytes = 0
        self._headers_bytes = 0
        self._trailer_bytes = 0
        self._own_pieces = 0  # of the body, where others came behind it
        self.status = 0
        self.content_length: int | None = None
        self.chunked = False
        self.headers: list[Header] = []
        self.complete = False
        self.keep_alive = False
        self.surplus = False

    def reset(self) -> None:
        """Forget the last response."""
        if self._taken_again:
            self._taken_again = self.complete = False  # the parser has seen nothing of it
            self.status = 0
            self.headers = []
            self.body.clear()
            return
        self._head_bytes = 0
        self._headers_bytes = 0
        self._trailer_bytes = 0
        self._interim = False
        self.status = 0
        self.content_length = None
        self.chunked = False
        self.headers = []
        self.body.clear()
        self.complete = False

    def again(self, data: bytes) -> bytes | None:
        """The body of the response that `data` is, if it is exactly one, whole, with the same head as the last one.

        `status` and `headers` are those of the last one. `None` means that nothing was taken.
        """
        last = self._last_headers
        if last is None or self.status or self._head_bytes:
            return None
        body = self._known.body_of(data, MAX_RESPONSE_BYTES_AT_ONCE)
        if body is not None:
            self.status, self.headers = self._last_status, last
            self.complete = self.keep_alive = self._taken_again = True
        return body

    def feed(self, data: bytes) -> None:
        """Take what the socket gave. Raises ResponseError."""
        if self.complete:
            self.surplus = True
            return
        fresh = self.status == 0 and self._head_bytes == 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise ResponseError("the engine answered with an upgrade") from error
        except httptools.HttpParserCallbackError as error:
            raise (error.__context__ or error) from None
        except httptools.HttpParserError as error:
            raise ResponseError(str(error)) from error
        if self.surplus:
            del self.body[self._own_pieces :]
        if self.status == 0:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_RESPONSE_HEAD_BYTES:
                raise _head_of_response_too_large()
        elif fresh:
            self._learn(data)
        elif not self.body:
            self._trailer_bytes += len(data)
            if self._trailer_bytes > MAX_RESPONSE_HEAD_BYTES:
                raise ResponseError(f"the trailers are larger than {MAX_RESPONSE_HEAD_BYTES} bytes")
        elif self._trailer_bytes:
            self._trailer_bytes = 0  # they were the size of a chunk

    def _learn(self, data: bytes) -> None:
        """One whole response came in one read: the next may have the same head."""
        plain = self.complete and self.keep_alive and not self.surplus and not self._interim
        if plain and self.content_length is not None and self.status not in _WITHOUT_BODY:
            self._known.learn(data)
            self._last_status, self._last_headers = self.status, self.headers
        else:
            self._last_headers = None

    def take_body(self) -> bytes:
        """The pieces of the body since the last call, as one."""
        body = self.body
        if not body:
            return b""
        data = body[0] if len(body) == 1 else b"".join(body)
        body.clear()
        return data

    def close(self) -> bool:
        """The upstream closed. True if that ends the response properly (a body without a length)."""
        if self.complete or self.status == 0:
            return self.complete
        self.complete = self.content_length is None and not self.chunked
        return self.complete

    # httptools' callbacks.

    def on_message_begin(self) -> None:
        """A first byte of a response is there."""
        if self.complete:
            self.surplus = True
            self._own_pieces = len(self.body)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole header, or a trailer, which is dropped."""
        if self.status or self.surplus:
            return
        self._headers_bytes += len(name) + len(value) + 4
        if self._headers_bytes > MAX_RESPONSE_HEAD_BYTES:
            raise _head_of_response_too_large()
        name = name.lower()
        if name == b"content-length":
            self.content_length = int(value)
        elif name == b"transfer-encoding":
            self.chunked = True
        else:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole. Interim responses (1xx) are dropped."""
        if self.surplus:
            return
        status = self._parser.get_status_code()
        if status < 200:
            if status < 100:
                raise ResponseError(f"{status} is no status")
            self._interim = True
            self.headers = []
            self.content_length = None
            return
        self.status = status
        self.keep_alive = self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        """The response has ended, or an interim one has."""
        if self.status:
            self.complete = True


def response_head(status: int, headers: list[Header], more: bytes = b"") -> bytes:
    """A response head; `more` are finished lines. All go out as they are: the caller knows where they come from."""
    lines = [b"HTTP/1.1 %d %s" % (status, REASONS.get(status, b"-"))]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join(lines) + b"\r\n" + more + b"\r\n"


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of a chunked body. `data` is not empty: an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
