"""Chats as tokens: a small template whose every piece fills whole tokens, so that a longer chat extends a shorter."""

from array import array
from collections.abc import Iterator
from hashlib import shake_128
from typing import Any

import msgspec

from pilothouse.testing.fake_engine.errors import bad_request
from pilothouse.testing.fake_engine.tokens import BYTES_PER_TOKEN, tokenize_pieces

_END = "<|end|>\n"
_TOKENS_OF_OTHER_PARTS = 64


class Message(msgspec.Struct, frozen=True):
    """One message of a chat. `content` is a text, a list of parts, or nothing."""

    role: str
    content: Any = None
    tool_calls: Any = None


def chat_tokens(messages: list[Message], *, system: Any = None, tools: Any = None) -> "array[int]":
    """The prompt of a chat, up to where the assistant's answer begins."""
    pieces: list[str] = []
    if tools:
        pieces += ["<|tools|>\n", _json(tools), _END]
    if system:
        pieces += [_role("system"), *_content(system), _END]
    for message in messages:
        pieces += [_role(message.role), *_content(message.content)]
        if message.tool_calls:
            pieces.append(_json(message.tool_calls))
        pieces.append(_END)
    pieces.append(_role("assistant"))
    return tokenize_pieces(pieces)


def _role(name: str) -> str:
    return f"<|{name}|>\n"


def _content(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, dict) else part
            yield text if isinstance(text, str) else _stand_in(part)
    elif content is not None:
        raise bad_request("1 validation error: `content` must be a string or a list of parts", "messages")


def _stand_in(part: Any) -> str:
    # An image costs tokens by its size on the screen, not by its bytes.
    return shake_128(msgspec.json.encode(part)).hexdigest(_TOKENS_OF_OTHER_PARTS * BYTES_PER_TOKEN // 2)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
