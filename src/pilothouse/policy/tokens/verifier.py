"""Whether a token is good, from memory alone."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable

from pilothouse.model.spec import TokenIssuerSpec
from pilothouse.policy.tokens.claims import judge
from pilothouse.policy.tokens.compact import read_token
from pilothouse.policy.tokens.identity import PROBLEMS, AuthProblem, TenantIdentity, TokenFault
from pilothouse.policy.tokens.key_ring import FILE_REFRESH_S, REFRESH_S, KeyRing, PublicKey

MAX_REMEMBERED = 10_000
"""Good tokens that are remembered until they end, the least recently used forgotten: about 5 MB."""


class TokenVerifier:
    """The tokens of the fleet's issuers. A good one is checked once, and remembered by its hash.

    What it says is as of the keys that were installed; `rings` are the issuers' keys, by the issuers' names.
    """

    def __init__(self, issuers: Iterable[TokenIssuerSpec], max_remembered: int = MAX_REMEMBERED) -> None:
        self.issuers = {issuer.issuer: issuer for issuer in issuers}
        self.rings = {
            name: KeyRing(REFRESH_S if issuer.jwks_file is None else FILE_REFRESH_S)
            for name, issuer in self.issuers.items()
        }
        self._remembered: OrderedDict[bytes, TenantIdentity] = OrderedDict()
        self._max_remembered = max_remembered

    def identity_of(self, bearer: bytes, now_s: float) -> TenantIdentity | AuthProblem:
        """Who the token speaks for at `now_s` (seconds since the epoch), or why it is not accepted. Never waits."""
        digest = hashlib.sha256(bearer).digest()
        identity = self._remembered.get(digest)
        if identity is not None:
            if now_s < identity.expires_at_s:
                self._remembered.move_to_end(digest)
                return identity
            del self._remembered[digest]
            return PROBLEMS[TokenFault.EXPIRED]
        found = self._verify(bearer, now_s)
        if isinstance(found, TokenFault):
            return PROBLEMS[found]
        self._remembered[digest] = found
        if len(self._remembered) > self._max_remembered:
            self._remembered.popitem(last=False)
        return found

    def install(self, issuer: str, keys: Iterable[PublicKey], now_s: float) -> None:
        """The issuer's keys are these now. If one is gone, no token is good unless it is checked again."""
        if self.rings[issuer].install(keys, now_s):
            self._remembered.clear()

    def _verify(self, bearer: bytes, now_s: float) -> TenantIdentity | TokenFault:
        token = read_token(bearer)
        if token is None:
            return TokenFault.MALFORMED
        name = token.claims.get("iss")
        issuer = self.issuers.get(name) if isinstance(name, str) else None
        if issuer is None:
            return TokenFault.ISSUER
        # The operator's list decides, never the token: no `none`, and no key is ever taken for a shared secret.
        if token.algorithm not in issuer.algorithms:
            return TokenFault.ALGORITHM
        # Before the signature, since it costs less. Nothing but a refusal follows from it.
        verdict = judge(token.claims, issuer, now_s)
        if isinstance(verdict, TokenFault):
            return verdict
        key = self.rings[issuer.issuer].find(token.key_id, token.algorithm, now_s)
        if isinstance(key, TokenFault):
            return key
        return verdict if key.verifies(token.algorithm, token.signed, token.signature) else TokenFault.SIGNATURE
