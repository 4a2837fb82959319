"""Tokens without a tokenizer: a token is four bytes of UTF-8, and its id is those bytes as a number.

That is close to the mean length of a token of English text, costs one copy, and keeps what matters to a router: a
text that begins with another text begins with its tokens. Every piece of a prompt is padded to whole tokens by
itself, so the answer of one turn has the same tokens when it comes back in the prompt of the next.
"""

import random
import sys
from array import array
from collections.abc import Iterable
from zlib import crc32

BYTES_PER_TOKEN = 4
_POOL_TOKENS = 16384
# Pieces of exactly four bytes of ASCII that need no escaping in JSON.
_PIECES = (
    " the and for are but not you all can her was one our out day get has him his how man new now old see two way who"
    " boy did its let put say she too use air big cup dry end far gas hot ice job key law map net oak pen red sea tea"
    " van war yes zoo"
)
_PIECE_LIST = tuple(" " + word for word in _PIECES.split())


def tokenize(text: str) -> "array[int]":
    """The token ids of one piece of text, the last one padded with zero bytes."""
    return ids_of(text.encode("utf-8", "surrogatepass"))


def ids_of(data: bytes) -> "array[int]":
    """The token ids of UTF-8 bytes, the last one padded with zero bytes."""
    ids = array("I")
    ids.frombytes(data + b"\0" * (-len(data) % BYTES_PER_TOKEN))
    return ids


def tokenize_pieces(pieces: Iterable[str]) -> "array[int]":
    """The token ids of several pieces, each padded to whole tokens by itself."""
    ids = array("I")
    for piece in pieces:
        ids.extend(tokenize(piece))
    return ids


def text_of(token_id: int) -> str:
    """The text of one token id; bytes that are not UTF-8 by themselves are shown as the replacement character."""
    data = (token_id & 0xFFFFFFFF).to_bytes(BYTES_PER_TOKEN, sys.byteorder).rstrip(b"\0")
    return data.decode("utf-8", "replace")


def split_text(text: str) -> tuple[str, ...]:
    """Text as pieces of at most one token each, cut between characters."""
    pieces: list[str] = []
    start = size = 0
    for index, character in enumerate(text):
        width = len(character.encode("utf-8", "surrogatepass"))
        if size + width > BYTES_PER_TOKEN:
            pieces.append(text[start:index])
            start, size = index, 0
        size += width
    if start < len(text):
        pieces.append(text[start:])
    return tuple(pieces)


class TextSource:
    """The words of a fake model: the same seed and the same prompt give the same text.

    One pool of words is drawn once; an answer is a run of it whose start depends on the prompt and the seed.
    """

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self._pool = "".join(draw.choices(_PIECE_LIST, k=_POOL_TOKENS))

    def text(self, prompt: "array[int]", seed: int, tokens: int) -> str:
        """`tokens` tokens of text, four ASCII characters each."""
        start = self.draw(prompt, seed) % _POOL_TOKENS * BYTES_PER_TOKEN
        size = tokens * BYTES_PER_TOKEN
        text = self._pool[start : start + size]
        while len(text) < size:
            text += self._pool[: size - len(text)]
        return text

    def draw(self, prompt: "array[int]", seed: int) -> int:
        """A number that looks random and depends on the prompt and the seed only."""
        return crc32(prompt, crc32(seed.to_bytes(8, "little", signed=True)))
