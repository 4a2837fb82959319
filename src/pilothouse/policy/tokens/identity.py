"""Who a token speaks for, or why it is not accepted."""

import enum

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.model.ids import KeyId, TenantId
from pilothouse.model.tenants import Tier

_URGENCY = {tier: rank for rank, tier in enumerate(Tier)}


class TenantIdentity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a verified token says. `key` stands for the issuer's subject in the ledger and says nothing about it.

    `expires_at_s` is when the token ends, in seconds since the epoch, the allowed skew included.
    """

    issuer: str
    key: KeyId
    tenant: TenantId
    expires_at_s: float
    tier: Tier | None = None

    def tier_within(self, tenant: Tier) -> Tier:
        """The class of service of a request: what the token asks for, but never more urgent than the tenant's."""
        return tenant if self.tier is None else max(tenant, self.tier, key=_URGENCY.__getitem__)


class TokenFault(enum.StrEnum):
    """Why a token is not accepted: few and fixed, so that they can be counted by."""

    MALFORMED = "malformed"
    ISSUER = "issuer"
    ALGORITHM = "algorithm"
    KEY = "key"
    SIGNATURE = "signature"
    AUDIENCE = "audience"
    EXPIRED = "expired"
    NOT_YET = "not_yet"
    CLAIMS = "claims"
    KEYS_UNAVAILABLE = "keys_unavailable"


_REFUSALS = {
    TokenFault.MALFORMED: ("invalid_token", "The bearer token is not a well-formed JWT with a signature."),
    TokenFault.ISSUER: ("invalid_token", "The bearer token is from an issuer that this fleet does not know."),
    TokenFault.ALGORITHM: ("invalid_token", "The bearer token is signed by an algorithm that is not accepted."),
    TokenFault.KEY: ("invalid_token", "The bearer token names a key that its issuer does not have."),
    TokenFault.SIGNATURE: ("invalid_token", "The bearer token's signature is wrong."),
    TokenFault.AUDIENCE: ("invalid_token", "The bearer token is made for another audience."),
    TokenFault.EXPIRED: ("token_expired", "The bearer token has expired."),
    TokenFault.NOT_YET: ("invalid_token", "The bearer token is not valid yet."),
    TokenFault.CLAIMS: ("invalid_token", "The bearer token's claims name no tenant or tier of this fleet."),
    TokenFault.KEYS_UNAVAILABLE: ("token_keys_unavailable", "The issuer's keys are being fetched. Try again."),
}


class AuthProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is not accepted. `refusal` is what the client hears."""

    fault: TokenFault
    refusal: Refusal


PROBLEMS = {
    fault: AuthProblem(fault=fault, refusal=Refusal(code=code, message=message))
    for fault, (code, message) in _REFUSALS.items()
}
"""One for each fault, made once."""
