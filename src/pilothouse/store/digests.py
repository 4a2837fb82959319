"""How keys are made and recognised. The gateway uses this too, so it needs nothing but the standard library."""

import hashlib
import hmac
import secrets
from pathlib import Path

from pilothouse.model.errors import PilothouseError
from pilothouse.store.private_files import create_private

KEY_PREFIX = "ph_"
_KEY_BYTES = 32  # 256 bits, which nobody guesses: a slow hash would cost latency and add nothing
_PEPPER_BYTES = 32  # the block of HMAC-SHA-256's output
_PUBLIC_ID_BYTES = 12


def new_key() -> str:
    """A secret key: `ph_` and 43 characters that are safe in URLs."""
    return KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def new_key_id() -> str:
    """The public name of a key: `key_` and 24 hexadecimal digits, unrelated to the secret."""
    return "key_" + secrets.token_hex(_PUBLIC_ID_BYTES)


def load_pepper(path: Path) -> bytes:
    """The fleet's pepper, made on first use.

    Raises:
        PilothouseError: state_unreadable, also when the file is not a pepper.
    """
    pepper = create_private(path, lambda: secrets.token_bytes(_PEPPER_BYTES))
    if len(pepper) != _PEPPER_BYTES:
        raise PilothouseError(
            "state_unreadable",
            f"{path} holds {len(pepper)} bytes where a pepper has {_PEPPER_BYTES}",
            hint="Restore it from a backup. If it is deleted a new one is made, but no earlier key is known any more.",
        )
    return pepper


def key_digest(pepper: bytes, key: str) -> str:
    """HMAC-SHA-256(pepper, key) in hexadecimal (RFC 2104): what is stored and compared instead of the key."""
    return hmac.digest(pepper, key.encode(), hashlib.sha256).hex()
