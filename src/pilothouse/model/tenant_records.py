"""Organisations, tenants and keys as administrators see and change them; the data plane's view is `tenants.py`."""

from typing import Any

import msgspec

from pilothouse.model.ids import KeyId, ModelName, OrganisationId, TenantId
from pilothouse.model.tenants import ALL_SCOPES, NO_LIMITS, Limits, Scope, Tier
from pilothouse.model.units import WallNs


class OrganisationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An organisation. `models`: what its tenants may ask for, `null` for all."""

    id: OrganisationId
    name: str
    created_at: WallNs
    limits: Limits = NO_LIMITS
    models: tuple[ModelName, ...] | None = None


class TenantRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant. The keys of a revoked one are not accepted any more."""

    id: TenantId
    organisation: OrganisationId
    name: str
    created_at: WallNs
    limits: Limits = NO_LIMITS
    models: tuple[ModelName, ...] | None = None
    tier: Tier = Tier.STANDARD
    weight: float = 1.0
    kv_share: float = 1.0
    revoked_at: WallNs | None = None


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A key without its secret, which only the answer that made it has."""

    id: KeyId
    tenant: TenantId
    name: str
    created_at: WallNs
    limits: Limits = NO_LIMITS
    models: tuple[ModelName, ...] | None = None
    scopes: tuple[Scope, ...] = ALL_SCOPES
    networks: tuple[str, ...] | None = None
    expires_at: WallNs | None = None
    revoked_at: WallNs | None = None


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was just made. `secret` is shown this once."""

    secret: str
    key: KeyRecord


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change by an administrator. `change` has the fields that were set, never a secret."""

    id: int
    at: WallNs
    actor: str
    action: str
    subject: str
    change: dict[str, Any]
