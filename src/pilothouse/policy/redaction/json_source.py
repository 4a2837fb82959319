"""JSON source read character by character: what its strings say, and where each character was written.

For tool-call arguments, which arrive in pieces cut anywhere, inside escapes too.
"""

import re

OUTSIDE, INSIDE, QUOTE = 0, 1, 2
"""What a character is: part of the structure or of a number, of what a string says, or the edge of a string."""

_PLAIN = re.compile(r'[^"\\]+')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPED = re.compile(r"\\u([0-9A-Fa-f]{4})")
_ESCAPE_CHARS = 6
_HIGH_SURROGATES = range(0xD800, 0xDC00)


class JsonSource:
    """Byte pump over JSON source.

    Attributes:
        decoded: How many characters of the source are decoded; the others are half an escape.
    """

    __slots__ = ("_inside", "_rest", "decoded")

    def __init__(self) -> None:
        self._inside = False
        self._rest = ""
        self.decoded = 0

    def feed(self, source: str) -> tuple[str, list[int], bytearray]:
        """What `source` says, for each character where it was written in the whole source, and what it is."""
        source = self._rest + source
        text: list[str] = []
        offsets: list[int] = []
        kinds = bytearray()
        at, length, base = 0, len(source), self.decoded
        while at < length:
            plain = _PLAIN.match(source, at)
            if plain is not None:
                end = plain.end()
                text.append(plain[0])
                offsets.extend(range(base + at, base + end))
                kinds.extend(bytes((INSIDE if self._inside else OUTSIDE,)) * (end - at))
                at = end
            elif source[at] == '"':
                self._inside = not self._inside
                text.append('"')
                offsets.append(base + at)
                kinds.append(QUOTE)
                at += 1
            else:
                character, size = _escape(source, at)
                if not size:
                    break
                text.append(character)
                offsets.append(base + at)
                kinds.append(INSIDE if self._inside else OUTSIDE)
                at += size
        self._rest = source[at:]
        self.decoded = base + at
        return "".join(text), offsets, kinds


def _escape(source: str, at: int) -> tuple[str, int]:
    """The character that the escape at `at` stands for and its length in the source; 0 while it is not whole."""
    if at + 1 == len(source):
        return "", 0
    kind = source[at + 1]
    if kind != "u":
        return _ESCAPES.get(kind, kind), 2
    digits = source[at + 2 : at + _ESCAPE_CHARS]
    try:
        code = int(digits, 16) if digits else 0
    except ValueError:
        return "u", 2  # not JSON; the client's parser will say so
    if len(digits) < 4:
        return "", 0
    if code in _HIGH_SURROGATES:
        second = source[at + _ESCAPE_CHARS : at + 2 * _ESCAPE_CHARS]
        if len(second) < _ESCAPE_CHARS and "\\u".startswith(second[:2]):
            return "", 0
        low = int(escaped[1], 16) if (escaped := _ESCAPED.fullmatch(second)) else 0
        if 0xDC00 <= low < 0xE000:
            return chr(0x10000 + ((code - 0xD800) << 10) + low - 0xDC00), 2 * _ESCAPE_CHARS
    return chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd", _ESCAPE_CHARS
