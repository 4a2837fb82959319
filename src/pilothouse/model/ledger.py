"""What a turn cost: one row for each, written before the turn's last event leaves."""

import enum

import msgspec

from pilothouse.model.ids import DeploymentName, KeyId, ModelName, OrganisationId, RequestId, TenantId
from pilothouse.model.units import WallNs


class Outcome(enum.StrEnum):
    """How a turn ended."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    """The client went away; what was generated is billed."""
    INTERRUPTED = "interrupted"
    """The engine or the gateway failed after content had been sent."""
    FAILED = "failed"
    """An error before any content: costs nothing."""


class CountedBy(enum.StrEnum):
    """Whose numbers a row has."""

    ENGINE = "engine"
    GATEWAY = "gateway"
    """The engine sent no usage: events were counted."""


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One turn. `id` is the request's own, so that a row that is inserted twice is one row.

    Times in nanoseconds since the epoch; `nano_cost` in billionths of the price list's currency.
    """

    id: RequestId
    organisation: OrganisationId
    tenant: TenantId
    key: KeyId
    model: ModelName
    deployment: DeploymentName
    started_at: WallNs
    ended_at: WallNs
    outcome: Outcome
    first_content_at: WallNs | None = None
    arm: str = ""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    nano_cost: int = 0
    counted_by: CountedBy = CountedBy.ENGINE


class UsageBy(enum.StrEnum):
    """What usage can be summed by."""

    ORGANISATION = "organisation"
    TENANT = "tenant"
    KEY = "key"
    MODEL = "model"
    DEPLOYMENT = "deployment"
    DAY = "day"


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """Turns that have something in common, added up. What they were not summed by is `None`; `day` is `YYYY-MM-DD`."""

    turns: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    nano_cost: int
    organisation: str | None = None
    tenant: str | None = None
    key: str | None = None
    model: str | None = None
    deployment: str | None = None
    day: str | None = None
