"""The `auth:` section of a fleet file: whose tokens are accepted beside the fleet's own keys."""

import ipaddress
import urllib.parse
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from pilothouse.config.addresses import check_upstream_url
from pilothouse.config.section import Section
from pilothouse.model.spec import TokenIssuerSpec

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
"""Asymmetric ones only: with a shared secret, whoever can check a token can also make one."""

_ClaimName = Annotated[str, Field(min_length=1, max_length=256)]
_ClaimPath = _ClaimName | Annotated[list[_ClaimName], Field(min_length=1, max_length=8)]
_Text = Annotated[str, Field(min_length=1, max_length=1024)]


def _check_keys_url(text: str) -> str:
    try:
        check_upstream_url(text)
    except ValueError as error:
        raise PydanticCustomError("rule", "{words}", {"words": str(error)}) from error
    url = urllib.parse.urlsplit(text)
    if url.scheme != "https" and not _is_loopback(url.hostname or ""):
        raise PydanticCustomError("rule", "must begin with https://: who can change the keys can make tokens")
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class TokenClaimsSection(Section):
    """Which claims say who a token speaks for: a name, or a list of names that lead into objects."""

    tenant: _ClaimPath = Field(
        default="tenant", description="The claim that names the tenant.", examples=[["organization", "id"]]
    )
    tier: _ClaimPath | None = Field(
        default=None,
        description="The claim that asks for a tier. It never makes a request more urgent than the tenant's own tier. "
        "Left out: the tenant's.",
    )


class TokenIssuerSection(Section):
    """An issuer of tokens (OpenID Connect)."""

    issuer: _Text = Field(
        description="Its name, exactly as in the tokens' `iss`.", examples=["https://login.example.com/"]
    )
    audience: _Text | Annotated[list[_Text], Field(min_length=1, max_length=64)] = Field(
        description="What the tokens' `aud` must have, or a list of which it must have one."
    )
    jwks_url: Annotated[str, AfterValidator(_check_keys_url)] | None = Field(
        default=None,
        description="Where its public keys are (a JSON Web Key Set): https, or http on this host. Redirects are not "
        "followed.",
        examples=["https://login.example.com/jwks.json"],
    )
    jwks_file: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")] | None = Field(
        default=None, description="The same in a file, relative to the fleet file; read again when it changes."
    )
    algorithms: list[Algorithm] = Field(
        default=["RS256", "ES256"], min_length=1, description="The signatures that are accepted."
    )
    claims: TokenClaimsSection = Field(
        default=TokenClaimsSection(), description="Which claims name the tenant and the tier."
    )
    tenants: dict[_Text, _Text] | None = Field(
        default=None,
        description="Tenants by the values of the tenant's claim; others are refused. Left out: the value is the "
        "tenant's id, so that the issuer can speak for every tenant of the fleet.",
    )
    leeway_s: int = Field(default=60, ge=0, le=300, description="How far the issuer's clock may be from this one.")

    @model_validator(mode="after")
    def _has_keys(self) -> "TokenIssuerSection":
        if (self.jwks_url is None) == (self.jwks_file is None):
            raise PydanticCustomError("rule", "needs either jwks_url or jwks_file")
        return self

    def spec(self, jwks_file: str | None) -> TokenIssuerSpec:
        """The issuer as the rest of the house knows it; `jwks_file` is the absolute path."""
        return TokenIssuerSpec(
            issuer=self.issuer,
            audiences=_listed(self.audience),
            algorithms=tuple(self.algorithms),
            tenant_claim=_listed(self.claims.tenant),
            tier_claim=None if self.claims.tier is None else _listed(self.claims.tier),
            jwks_url=self.jwks_url,
            jwks_file=jwks_file,
            tenants=self.tenants,
            leeway_s=self.leeway_s,
        )


def _listed(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _check_names(issuers: list[TokenIssuerSection]) -> list[TokenIssuerSection]:
    if len({each.issuer for each in issuers}) < len(issuers):
        raise PydanticCustomError("rule", "each issuer is named once")
    return issuers


class TokensSection(Section):
    """JWT bearer tokens; needs `pip install 'pilothouse[jwt]'`."""

    issuers: Annotated[list[TokenIssuerSection], Field(min_length=1, max_length=64), AfterValidator(_check_names)] = (
        Field(description="Whose tokens are accepted.")
    )


class AuthSection(Section):
    """Who may call, beside the holders of the fleet's own keys."""

    jwt: TokensSection | None = Field(default=None, description="Tokens of your own issuers. Left out: none.")
