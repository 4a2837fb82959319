"""Who is asking: a key in a header to a caller, from memory alone."""

import hmac

from pilothouse.gateway.callers import Caller, Callers
from pilothouse.model.errors import Refusal
from pilothouse.wire.http1 import Header

MAX_KEY_BYTES = 512
"""Longer than any credential made here; a longer one is not hashed."""

_MISSING = Refusal(
    code="missing_api_key",
    message="You didn't provide an API key. Send it as `authorization: Bearer YOUR_KEY` (or `x-api-key`).",
)
_INVALID = Refusal(code="invalid_api_key", message="Incorrect API key provided.")


def authenticate(headers: list[Header], callers: Callers, pepper: bytes) -> Caller | Refusal:
    """Whose key the request's headers carry, or why there is none.

    Keys are looked up by their HMAC-SHA-256: the comparison happens on digests that an attacker cannot choose without
    the pepper, so that its time tells nothing.
    """
    key = b""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, credential = value.partition(b" ")
            if scheme.lower() == b"bearer":
                key = credential.strip()
                break
        elif name == b"x-api-key":
            key = value
    if not key:
        return _MISSING
    if len(key) > MAX_KEY_BYTES:
        return _INVALID
    return callers.find(hmac.digest(pepper, key, "sha256")) or _INVALID
