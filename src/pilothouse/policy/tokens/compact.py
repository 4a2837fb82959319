"""A token in its compact form (RFC 7515, 3.1): three base64url parts between dots, read once and strictly."""

import binascii
import re
from typing import Any

import msgspec

MAX_TOKEN_BYTES = 8 * 1024
"""The longest token that is looked at: a quarter of the longest head. Identity providers keep to 4 to 8 KiB."""
MAX_KEY_ID = 256
KEY_PREFIX = b"ph_"
"""How this fleet's own keys begin (`store/digests.py`)."""

_DOTS = 2
_FORM = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_Object = dict[str, Any]


class CompactToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is well-formed, and not to be believed yet. `signed` is what the signature is over."""

    algorithm: str
    key_id: str | None
    claims: dict[str, Any]
    signed: bytes
    signature: bytes


def is_token(bearer: bytes) -> bool:
    """Whether a bearer is to be read as a JWT: it has two dots and is not one of the fleet's own keys."""
    return bearer.count(b".") == _DOTS and not bearer.startswith(KEY_PREFIX)


def read_token(bearer: bytes) -> CompactToken | None:
    """The token; `None` if it is none.

    A token with critical extensions (`crit`) is none, since none is understood; and what else the header has, such as
    keys or addresses of keys, is not looked at.
    """
    form = _FORM.fullmatch(bearer) if len(bearer) <= MAX_TOKEN_BYTES else None
    if form is None:
        return None
    header, claims, signature = _object(form[1]), _object(form[2]), _decoded(form[3])
    if header is None or claims is None or signature is None or "crit" in header:
        return None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not isinstance(key_id, str | None) or len(key_id or "") > MAX_KEY_ID:
        return None
    return CompactToken(
        algorithm=algorithm, key_id=key_id, claims=claims, signed=bearer[: form.end(2)], signature=signature
    )


def _object(part: bytes) -> _Object | None:
    text = _decoded(part)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=_Object)
    except (msgspec.DecodeError, RecursionError):
        return None


def _decoded(part: bytes) -> bytes | None:
    """Base64url without padding. Bits left over must be zero, so that a token can be written in one way only."""
    try:
        content = binascii.a2b_base64(part.translate(_TO_BASE64) + b"=" * (-len(part) % 4), strict_mode=True)
    except binascii.Error:
        return None
    return content if binascii.b2a_base64(content, newline=False).rstrip(b"=") == part.translate(_TO_BASE64) else None


_TO_BASE64 = bytes.maketrans(b"-_", b"+/")
