"""POST /v1/embeddings: vectors of length one that depend on the text only."""

import math
from array import array
from base64 import b64encode
from hashlib import shake_128
from typing import Any, Literal

import msgspec

from pilothouse.testing.fake_engine.dialects.base import decode
from pilothouse.testing.fake_engine.dialects.completions import prompts_of
from pilothouse.testing.fake_engine.errors import bad_request

_MAX_DIMENSIONS = 65536


class EmbeddingsBody(msgspec.Struct, frozen=True):
    """The fields that the engine looks at; others are taken and ignored."""

    input: Any
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


class EmbeddingsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for one vector per prompt. `dimensions` is `None` for the engine's own."""

    model: str | None
    prompts: "list[array[int]]"
    base64: bool
    dimensions: int | None


def parse(data: bytes) -> EmbeddingsRequest:
    """Read a request. Raises RequestRefusedError."""
    body = decode(data, EmbeddingsBody)
    if body.dimensions is not None and not 1 <= body.dimensions <= _MAX_DIMENSIONS:
        raise bad_request(f"dimensions must be between 1 and {_MAX_DIMENSIONS}, got {body.dimensions}.", "dimensions")
    return EmbeddingsRequest(
        model=body.model,
        prompts=prompts_of(body.input, "input"),
        base64=body.encoding_format == "base64",
        dimensions=body.dimensions,
    )


def vector(prompt: "array[int]", dimensions: int) -> "array[float]":
    """The vector of a prompt: 32-bit floats of length one."""
    raw = array("h")
    raw.frombytes(shake_128(prompt).digest(2 * dimensions))
    length = math.sqrt(sum(value * value for value in raw)) or 1.0
    return array("f", (value / length for value in raw))


def whole(request: EmbeddingsRequest, request_id: str, created: int, model: str, dimensions: int) -> dict[str, Any]:
    """The response."""
    data: list[dict[str, Any]] = []
    for index, prompt in enumerate(request.prompts):
        values = vector(prompt, request.dimensions or dimensions)
        embedding = b64encode(values).decode() if request.base64 else values.tolist()
        data.append({"index": index, "object": "embedding", "embedding": embedding})
    tokens = sum(map(len, request.prompts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": None}
    return {
        "id": f"embd-{request_id}",
        "object": "list",
        "created": created,
        "model": model,
        "data": data,
        "usage": usage,
    }
