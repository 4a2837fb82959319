"""A message whose head is known already: the one before it on the connection, but for its content-length.

Clients and engines write the same head from message to message; only the length differs. llhttp has parsed, and judged,
such a head once. When the next read is exactly one message with it, nothing is left to parse but a number. (This saves
about 4 us per request of 17 headers and 3 us of 4, where a whole JSON request may cost 30.)
"""

_NAME = b"\r\ncontent-length:"
_MAX_DIGITS = 18


class KnownHead:
    """What stands before and behind the digits of the content-length in the head that was learned."""

    __slots__ = ("_after", "_before")

    def __init__(self) -> None:
        self._before = b""
        self._after = b""

    def learn(self, data: bytes) -> None:
        """`data` is exactly one message with a content-length, and was found to be valid."""
        head = data[: data.index(b"\r\n\r\n") + 4]
        name = head.lower().find(_NAME)
        digits = name + len(_NAME)
        while head[digits : digits + 1] in (b" ", b"\t"):
            digits += 1
        end = head.find(b"\r", digits)
        if name < 0 or not head[digits:end].isdigit():
            self.forget()
            return
        self._before, self._after = head[:digits], head[end:]

    def forget(self) -> None:
        """Nothing is known."""
        self._before = b""

    def body_of(self, data: bytes, limit: int) -> bytes | None:
        """The body, if `data` is exactly one message with the known head and a body of at most `limit` bytes."""
        before = self._before
        if not before or not data.startswith(before):
            return None
        start = len(before)
        end = data.find(b"\r", start, start + _MAX_DIGITS + 1)
        digits = data[start:end]
        if not digits.isdigit() or not data.startswith(self._after, end):
            return None
        length = int(digits)
        body = end + len(self._after)
        if len(data) - body != length or length > limit:
            return None
        return data[body:]
