"""Calls from web pages of other origins (Fetch standard, CORS protocol): which pages may, and how they are told.

No credentials of the browser are involved: a page has to bring a key of its own, and cookies are never read.
"""

import re

from pilothouse.wire.http1 import Header, Request

ANY = "*"
_TOKENS = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+( *, *[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_MAX_NAMES_BYTES = 2048  # what a preflight may ask for; 100 names of 20 characters
_PREFLIGHT_AGE_S = b"600"  # as long as Chromium keeps a preflight's answer by its own default cap for unset headers

_EXPOSED = b"x-request-id, x-pilothouse-request-id, x-pilothouse-overhead-ms, retry-after"


class CrossOrigin:
    """The origins whose pages may call; with none of them, pages of other origins may not."""

    __slots__ = ("_any", "_origins", "enabled")

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._any = ANY in origins
        self._origins = frozenset(origin.encode() for origin in origins)
        self.enabled = bool(origins)

    def _allowed(self, request: Request) -> bytes | None:
        """The request's origin, if it has one that may call."""
        origin = _header(request, b"origin")
        return origin if origin is not None and (self._any or origin in self._origins) else None

    def lines(self, request: Request) -> bytes:
        """The header lines that let the page read the answer; none for a page that may not."""
        origin = self._allowed(request) if self.enabled else None
        if origin is None:
            return b"vary: origin\r\n" if self.enabled else b""
        return b"access-control-allow-origin: %b\r\nvary: origin\r\naccess-control-expose-headers: %b\r\n" % (
            origin,
            _EXPOSED,
        )

    def preflight(self, request: Request, methods: tuple[bytes, ...]) -> tuple[Header, ...] | None:
        """The headers that answer a browser's question before a call; `None` if this is no such question.

        A page that may not call gets an answer without permission.
        """
        if (
            not self.enabled
            or request.method != b"OPTIONS"
            or _header(request, b"access-control-request-method") is None
        ):
            return None
        if self._allowed(request) is None:
            return ()
        names = _header(request, b"access-control-request-headers") or b""
        known = len(names) <= _MAX_NAMES_BYTES and _TOKENS.fullmatch(names)
        asked: tuple[Header, ...] = ((b"access-control-allow-headers", names),) if known else ()
        return (
            (b"access-control-allow-methods", b", ".join(methods)),
            *asked,
            (b"access-control-max-age", _PREFLIGHT_AGE_S),
        )


def _header(request: Request, name: bytes) -> bytes | None:
    return next((value for each, value in request.headers if each == name), None)
