"""The inference routes, and what an engine says of a request at its end."""

import enum

import msgspec


class Route(enum.StrEnum):
    """The inference routes of the data plane; the value is the path."""

    CHAT_COMPLETIONS = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    EMBEDDINGS = "/v1/embeddings"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens of one turn as the engine counted them."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
