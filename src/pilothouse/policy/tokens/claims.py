"""What a token's claims have to be (RFC 7519), and who they speak for."""

import hashlib
import math
from typing import Any

from pilothouse.model.ids import KeyId, TenantId
from pilothouse.model.spec import TokenIssuerSpec
from pilothouse.model.tenants import Tier
from pilothouse.policy.tokens.identity import TenantIdentity, TokenFault

MAX_NAME = 128
"""The longest value of a claim that names a tenant."""
_KEY_DIGITS = 24  # as the ids of keys have
_TIERS = {tier.value: tier for tier in Tier}


def judge(claims: dict[str, Any], issuer: TokenIssuerSpec, now_s: float) -> TenantIdentity | TokenFault:
    """Who the claims of a token of this issuer speak for at `now_s`. Its signature is somebody else's concern."""
    expires_s, begins_s = _instant(claims.get("exp")), _instant(claims.get("nbf", 0))
    if expires_s is None or begins_s is None or claims.get("iss") != issuer.issuer:
        return TokenFault.CLAIMS
    if now_s >= expires_s + issuer.leeway_s:
        return TokenFault.EXPIRED
    if now_s < begins_s - issuer.leeway_s:
        return TokenFault.NOT_YET
    audience = claims.get("aud")
    if not any(each in issuer.audiences for each in (audience if isinstance(audience, list) else (audience,))):
        return TokenFault.AUDIENCE
    tenant = _tenant(_claim(claims, issuer.tenant_claim), issuer)
    tier_name = None if issuer.tier_claim is None else _claim(claims, issuer.tier_claim)
    tier = _TIERS.get(tier_name) if isinstance(tier_name, str) else None
    if tenant is None or (tier is None and tier_name is not None):
        return TokenFault.CLAIMS
    subject = claims.get("sub", "")
    if not isinstance(subject, str):
        return TokenFault.CLAIMS
    return TenantIdentity(
        issuer=issuer.issuer,
        key=key_of(issuer.issuer, subject),
        tenant=tenant,
        tier=tier,
        expires_at_s=expires_s + issuer.leeway_s,
    )


def key_of(issuer: str, subject: str) -> KeyId:
    """The key id that a subject has in the ledger: always the same, and nobody's name or address."""
    text = f"{issuer}\0{subject}".encode("utf-8", "surrogatepass")
    return KeyId("jwt_" + hashlib.sha256(text).hexdigest()[:_KEY_DIGITS])


def _instant(value: Any) -> float | None:
    """A NumericDate; `None` if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None


def _claim(claims: dict[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = claims
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _tenant(name: Any, issuer: TokenIssuerSpec) -> TenantId | None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        return None
    if issuer.tenants is None:
        return TenantId(name)
    tenant = issuer.tenants.get(name)
    return None if tenant is None else TenantId(tenant)
