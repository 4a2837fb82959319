"""The public keys of token issuers: read from JSON Web Key Sets (RFC 7517), and kept fresh.

Needs `pip install 'pilothouse[jwt]'`. Nothing here is on the path of a request but `SigningKey.verifies`.
"""

import asyncio
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, JWKRegistry, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from pilothouse.config.addresses import leads_to_metadata
from pilothouse.model.spec import TokenIssuerSpec
from pilothouse.policy.tokens.verifier import TokenVerifier

MAX_SET_BYTES = 1 << 20
MAX_KEYS = 100
"""Issuers have two or three; one with more than a hundred is not what it says."""
FETCH_TIMEOUT_S = 5.0
MIN_RSA_BITS = 2048
"""RFC 7518, 3.3: a larger one MUST be used."""

_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_BY_CURVE = {
    "P-256": frozenset({"ES256"}),
    "P-384": frozenset({"ES384"}),
    "P-521": frozenset({"ES512"}),
    "Ed25519": frozenset({"EdDSA", "Ed25519"}),
}

Failed = Callable[[str, str], None]
"""Told the issuer and the reason when its keys could not be fetched."""


class KeySetError(Exception):
    """The keys could not be had. The text says why, in words that may be logged."""


class SigningKey:
    """A public key of an issuer (`policy.tokens.key_ring.PublicKey`)."""

    __slots__ = ("_key", "algorithms", "key_id", "thumbprint")

    def __init__(self, key: RSAKey | ECKey | OKPKey, key_id: str | None, algorithms: frozenset[str]) -> None:
        self._key = key
        self.key_id = key_id
        self.algorithms = algorithms
        self.thumbprint = key.thumbprint()

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Whether the key has made this signature by this algorithm, which must be one of its own."""
        if algorithm not in self.algorithms:
            return False
        try:
            return bool(JWSRegistry.algorithms[algorithm].verify(signed, signature, self._key))
        except (JoseError, ValueError):
            return False


def read_key_set(content: bytes) -> tuple[SigningKey, ...]:
    """The keys of a set that signatures can be checked with. Others (shared secrets, for encryption) are left out.

    Raises:
        KeySetError: it is no key set, or there is no such key in it.
    """
    try:
        found = msgspec.json.decode(content, type=dict[str, Any]).get("keys")
    except (msgspec.DecodeError, RecursionError) as error:
        raise KeySetError("what was read is not a JSON Web Key Set") from error
    if not isinstance(found, list) or len(found) > MAX_KEYS:
        raise KeySetError(f"what was read has no list of at most {MAX_KEYS} keys")
    keys = tuple(key for each in found if (key := _signing_key(each)) is not None)
    if not keys:
        raise KeySetError("the key set has no key that can check a signature")
    return keys


def _signing_key(jwk: Any) -> SigningKey | None:
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig" or "verify" not in jwk.get("key_ops", ["verify"]):
        return None
    key_id = jwk.get("kid")
    algorithms = _RSA if jwk.get("kty") == "RSA" else _BY_CURVE.get(str(jwk.get("crv")), frozenset())
    if "alg" in jwk:
        algorithms &= {jwk["alg"]} if isinstance(jwk["alg"], str) else frozenset()
    if not algorithms or not isinstance(key_id, str | None):
        return None
    public = {name: value for name, value in jwk.items() if name in _PUBLIC_PARTS}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # of short keys, which are left out below
            key = JWKRegistry.import_key(public)
        if not isinstance(key, RSAKey | ECKey | OKPKey) or _bits(key) < MIN_RSA_BITS:
            return None
        return SigningKey(key, key_id, algorithms)
    except (JoseError, ValueError, TypeError):
        return None


_PUBLIC_PARTS = frozenset({"kty", "n", "e", "crv", "x", "y"})


def _bits(key: RSAKey | ECKey | OKPKey) -> int:
    return key.public_key.key_size if isinstance(key, RSAKey) else MIN_RSA_BITS


class TokenKeysKeeper:
    """Fetches the issuers' keys for a verifier, when it wants them, until it is cancelled.

    `failed` is told of every failure; the keys that were there are used on for a day.
    """

    def __init__(self, verifier: TokenVerifier, failed: Failed, now_s: Callable[[], float] = time.time) -> None:
        self._verifier = verifier
        self._failed = failed
        self._now_s = now_s

    async def run(self) -> None:
        """Keep all issuers' keys, each on its own: one that is slow holds up no other."""
        async with (
            httpx2.AsyncClient(follow_redirects=False, trust_env=False, timeout=FETCH_TIMEOUT_S) as http,
            asyncio.TaskGroup() as group,
        ):
            for issuer in self._verifier.issuers.values():
                group.create_task(self._keep(issuer, http))

    async def _keep(self, issuer: TokenIssuerSpec, http: httpx2.AsyncClient) -> None:
        ring = self._verifier.rings[issuer.issuer]
        wanted = asyncio.Event()
        ring.on_wanted = wanted.set
        while True:
            wanted.clear()
            due_in_s = ring.due_in(self._now_s())
            if due_in_s > 0:
                try:
                    async with asyncio.timeout(due_in_s):
                        await wanted.wait()
                except TimeoutError:
                    pass
                continue
            try:
                keys = read_key_set(await _content(issuer, http))
            except KeySetError as error:
                ring.failed(self._now_s())
                self._failed(issuer.issuer, str(error))
            else:
                self._verifier.install(issuer.issuer, keys, self._now_s())


async def _content(issuer: TokenIssuerSpec, http: httpx2.AsyncClient) -> bytes:
    if issuer.jwks_url is None:
        return await asyncio.to_thread(_file, Path(issuer.jwks_file or ""))
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            return await _fetch(issuer.jwks_url, http)
    except TimeoutError as error:
        raise KeySetError(f"no answer within {FETCH_TIMEOUT_S:g} s") from error
    except (httpx2.HTTPError, OSError) as error:
        raise KeySetError(str(error) or type(error).__name__) from error


async def _fetch(url: str, http: httpx2.AsyncClient) -> bytes:
    async with http.stream("GET", url, headers={"accept": "application/json"}) as response:
        # The fleet file was checked for this by name; what the name leads to is known only here.
        address = response.extensions["network_stream"].get_extra_info("server_addr")
        if address is None or leads_to_metadata(str(address[0])):
            raise KeySetError("the URL leads to a link-local address")
        if response.status_code != httpx2.codes.OK:
            raise KeySetError(f"the answer's status is {response.status_code}, not 200")
        content = bytearray()
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > MAX_SET_BYTES:
                raise KeySetError(f"the answer is longer than {MAX_SET_BYTES} bytes")
        return bytes(content)


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SET_BYTES + 1)
    except OSError as error:
        raise KeySetError(f"{path.name} cannot be read: {error.strerror}") from error
    if len(content) > MAX_SET_BYTES:
        raise KeySetError(f"{path.name} is longer than {MAX_SET_BYTES} bytes")
    return content
