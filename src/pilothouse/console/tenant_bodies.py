"""What the admin API takes and gives for organisations, tenants and keys."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from pilothouse.model.ids import KeyId, ModelName, OrganisationId, TenantId
from pilothouse.model.ledger import UsageRow
from pilothouse.model.tenant_records import AuditEntry, KeyRecord, OrganisationRecord, TenantRecord
from pilothouse.model.tenants import ALL_SCOPES, NO_LIMITS, Limits, Scope, Tier
from pilothouse.model.units import WallNs

Id = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?\Z", max_length=63)]
Text = Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
Models = Annotated[tuple[Text, ...], msgspec.Meta(max_length=100)]
Networks = Annotated[tuple[Text, ...], msgspec.Meta(max_length=100)]
Scopes = Annotated[tuple[Scope, ...], msgspec.Meta(max_length=len(ALL_SCOPES))]
Time = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Weight = Annotated[float, msgspec.Meta(gt=0, le=1000)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class NewOrganisation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An organisation to be made."""

    id: Id
    name: Text = ""
    limits: Limits = NO_LIMITS
    models: Models | None = None

    def record(self) -> OrganisationRecord:
        """As the store takes it."""
        return OrganisationRecord(
            id=OrganisationId(self.id),
            name=self.name or self.id,
            created_at=WallNs(0),
            limits=self.limits,
            models=_names(self.models),
        )


class ChangedOrganisation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of an organisation to be set; the others stay."""

    name: Text | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET
    models: Models | UnsetType | None = UNSET


class NewTenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tenant to be made. Its organisation is made too, if there is none of that id."""

    id: Id
    organisation: Id
    name: Text = ""
    limits: Limits = NO_LIMITS
    models: Models | None = None
    tier: Tier = Tier.STANDARD
    weight: Weight = 1.0
    kv_share: Share = 1.0

    def record(self) -> TenantRecord:
        """As the store takes it."""
        return TenantRecord(
            id=TenantId(self.id),
            organisation=OrganisationId(self.organisation),
            name=self.name or self.id,
            created_at=WallNs(0),
            limits=self.limits,
            models=_names(self.models),
            tier=self.tier,
            weight=self.weight,
            kv_share=self.kv_share,
        )


class ChangedTenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a tenant to be set; the others stay."""

    name: Text | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET
    models: Models | UnsetType | None = UNSET
    tier: Tier | UnsetType = UNSET
    weight: Weight | UnsetType = UNSET
    kv_share: Share | UnsetType = UNSET


class NewKeyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to be made. `expires_at` in nanoseconds since the epoch; `networks` in CIDR notation."""

    tenant: Id
    name: Text = ""
    limits: Limits = NO_LIMITS
    models: Models | None = None
    scopes: Scopes = ALL_SCOPES
    networks: Networks | None = None
    expires_at: Time | None = None

    def record(self) -> KeyRecord:
        """As the store takes it."""
        return KeyRecord(
            id=KeyId(""),
            tenant=TenantId(self.tenant),
            name=self.name,
            created_at=WallNs(0),
            limits=self.limits,
            models=_names(self.models),
            scopes=self.scopes,
            networks=self.networks,
            expires_at=None if self.expires_at is None else WallNs(self.expires_at),
        )


class ChangedKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a key to be set; the others stay."""

    name: Text | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET
    models: Models | UnsetType | None = UNSET
    scopes: Scopes | UnsetType = UNSET
    networks: Networks | UnsetType | None = UNSET
    expires_at: Time | UnsetType | None = UNSET


class Rotation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the old key is still accepted, in seconds."""

    grace_s: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 0.0


class Nothing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An empty object."""


class Organisations(msgspec.Struct, frozen=True, kw_only=True):
    """All organisations, by id."""

    organisations: tuple[OrganisationRecord, ...]


class Tenants(msgspec.Struct, frozen=True, kw_only=True):
    """Tenants, by id."""

    tenants: tuple[TenantRecord, ...]


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys, in the order they were made."""

    keys: tuple[KeyRecord, ...]


class AuditLog(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of the audit log, newest first."""

    entries: tuple[AuditEntry, ...]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Turns, added up."""

    usage: tuple[UsageRow, ...]


def changes(body: ChangedOrganisation | ChangedTenant | ChangedKey) -> dict[str, object]:
    """The fields that a body sets."""
    values = ((name, getattr(body, name)) for name in body.__struct_fields__)
    return {name: value for name, value in values if value is not UNSET}


def _names(models: tuple[str, ...] | None) -> tuple[ModelName, ...] | None:
    return None if models is None else tuple(ModelName(name) for name in models)
