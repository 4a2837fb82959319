"""A large JSON text without what stands in its long strings.

A prompt is nearly all of a large request, and nothing in it decides where the request goes. A JSON decoder looks at
each of its characters (55 us for 200 KB, as much as the rest of the request costs); here a string's end is looked for
with `bytes.find`, which goes ten times as fast. Whether the characters between are allowed in a string is then left for
the engine to judge: it changes nothing of where the string ends.
"""

LONG = 2048
"""Bytes from which a string is left out. To look for its end costs as much as decoding some hundred."""

_FIRST_LOOKS = 32
"""For the fields that stand before the first long string."""

_BYTES_PER_LOOK = 512
"""What a decoder passes over in the time of one look: a text of many quotes is left to it."""

_MAX_BACKSLASHES = 64
"""In a row before a quote; a text with more is left to the decoder."""


def without_long_strings(text: bytes) -> bytes:
    """`text`, a JSON text, with those of its long strings made empty whose ends are quickly found."""
    kept: list[bytes] = []
    done = at = looks = 0
    opening = -1  # the quote that the string began with, if we are in one
    while (at := text.find(b'"', at)) >= 0 and looks < _FIRST_LOOKS + at // _BYTES_PER_LOOK:
        looks += 1
        if opening < 0:
            opening = at
        else:
            backslashes = _backslashes_before(text, at)
            if backslashes == _MAX_BACKSLASHES:
                break
            if backslashes % 2 == 0:
                if at - opening > LONG:
                    kept.append(text[done : opening + 1])
                    done = at
                opening = -1
        at += 1
    kept.append(text[done:])
    return b"".join(kept)


def _backslashes_before(text: bytes, at: int) -> int:
    if not text.startswith(b"\\", at - 1):
        return 0
    before = text[max(0, at - _MAX_BACKSLASHES) : at]
    return len(before) - len(before.rstrip(b"\\"))
