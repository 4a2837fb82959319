"""What the gateway knows of a request, and of its end, without knowing its text."""

import enum

import msgspec

from pilothouse.model.ids import KeyId, ModelName, RequestId, TenantId
from pilothouse.model.units import Tokens


class Route(enum.StrEnum):
    """The inference routes of the data plane; the value is the path."""

    CHAT_COMPLETIONS = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    EMBEDDINGS = "/v1/embeddings"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts a policy may decide on.

    `input_tokens` is an estimate and `expected_output_tokens` a guess bounded by the client's own limit: they weigh
    load and are never billed.
    """

    id: RequestId
    tenant: TenantId
    key: KeyId
    model: ModelName
    route: Route
    stream: bool
    input_tokens: Tokens
    expected_output_tokens: Tokens


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one turn as the engine counted them."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
