"""Who is asking: a key in a header to a key of the fleet, from memory alone."""

import hmac

from pilothouse.gateway.routing_table import RoutingTable
from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import KeyView
from pilothouse.wire.http1 import Header

MAX_KEY_BYTES = 512
"""Longer than any credential made here; a longer one is not hashed."""

_MISSING = Refusal(
    code="missing_api_key",
    message="You didn't provide an API key. Send it as `authorization: Bearer YOUR_KEY` (or `x-api-key`).",
)
_INVALID = Refusal(code="invalid_api_key", message="Incorrect API key provided.")


def authenticate(headers: list[Header], table: RoutingTable, pepper: bytes) -> KeyView | Refusal:
    """The key that the request's headers carry, or why there is none.

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
    return table.keys.get(hmac.digest(pepper, key, "sha256")) or _INVALID
