"""Signed tokens for tests, made with the issuer's private key."""

import base64
from typing import Any

import msgspec
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from pilothouse.model.spec import TokenIssuerSpec
from pilothouse.store.token_keys import read_key_set

NOW = 1_800_000_000
ISSUER = "https://login.example.com/"
PrivateKey = RSAKey | ECKey | OKPKey

RSA = RSAKey.generate_key(2048, {"kid": "rsa-1"})
EC = ECKey.generate_key("P-256", {"kid": "ec-1"})
OKP = OKPKey.generate_key("Ed25519", {"kid": "okp-1"})


def issuer_spec(**changes: Any) -> TokenIssuerSpec:
    """An issuer with keys at a URL that nobody asks."""
    fields: dict[str, Any] = {
        "issuer": ISSUER,
        "audiences": ("pilothouse", "other"),
        "algorithms": ("RS256", "ES256", "EdDSA"),
        "tenant_claim": ("tenant",),
        "tier_claim": ("tier",),
        "jwks_url": "https://login.example.com/jwks.json",
    }
    return TokenIssuerSpec(**{**fields, **changes})


def claims(**changes: Any) -> dict[str, Any]:
    """Good claims for an hour; a change to `None` takes one out."""
    fields = {"iss": ISSUER, "aud": "pilothouse", "exp": NOW + 3600, "sub": "alice", "tenant": "acme", **changes}
    return {name: value for name, value in fields.items() if value is not None}


def part(content: bytes | dict[str, Any]) -> bytes:
    """Base64url, without padding."""
    raw = content if isinstance(content, bytes) else msgspec.json.encode(content)
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def token(key: PrivateKey, body: dict[str, Any] | None = None, *, alg: str = "ES256", **header: Any) -> bytes:
    """A token signed by this key. `header` adds to `alg` and `kid`; a `None` takes one out."""
    head = {"alg": alg, "kid": key.kid, **header}
    head = {name: value for name, value in head.items() if value is not None}
    signed = part(head) + b"." + part(claims() if body is None else body)
    return signed + b"." + part(JWSRegistry.algorithms[alg].sign(signed, key))


def key_set(*keys: PrivateKey) -> bytes:
    """What the issuer publishes."""
    return msgspec.json.encode({"keys": [{**key.as_dict(private=False)} for key in keys]})


def public_keys(*keys: PrivateKey) -> Any:
    """The same, read."""
    return read_key_set(key_set(*keys))
