"""Who is asking: a key in a header to a caller, from memory alone."""

import hmac
from typing import TYPE_CHECKING

from pilothouse.gateway.callers import Caller
from pilothouse.model.errors import Refusal
from pilothouse.policy.tokens.compact import is_token
from pilothouse.policy.tokens.identity import PROBLEMS, AuthProblem, TokenFault
from pilothouse.wire.http1 import Header

if TYPE_CHECKING:
    from pilothouse.gateway.plane import DataPlane

MAX_KEY_BYTES = 512
"""Longer than any credential made here; a longer one is not hashed."""

_MISSING = Refusal(
    code="missing_api_key",
    message="You didn't provide an API key. Send it as `authorization: Bearer YOUR_KEY` (or `x-api-key`).",
)
_UNKNOWN_TENANT = PROBLEMS[TokenFault.CLAIMS].refusal
_SECOND = 1e9
_INVALID = Refusal(code="invalid_api_key", message="Incorrect API key provided.")


def authenticate(headers: list[Header], plane: "DataPlane", wall: int) -> Caller | Refusal:
    """Whose key the request's headers carry, or why there is none.

    Keys are looked up by their HMAC-SHA-256: the comparison happens on digests that an attacker cannot choose without
    the pepper, so that its time tells nothing. A bearer that has the form of a JWT is one, where the fleet accepts
    those. `wall` is now, in nanoseconds since the epoch.
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
    if plane.tokens is not None and is_token(key):
        identity = plane.tokens.identity_of(key, wall / _SECOND)
        if isinstance(identity, AuthProblem):
            return identity.refusal
        return plane.callers.of_token(identity) or _UNKNOWN_TENANT
    if len(key) > MAX_KEY_BYTES:
        return _INVALID
    return plane.callers.find(hmac.digest(plane.pepper, key, "sha256")) or _INVALID
