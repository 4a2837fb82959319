"""Organisations, tenants and keys: who may ask, for what, and how much.

The request path sees these values only: the database is read by the controller, which publishes a `TenantDirectory`.
There may be a hundred thousand of them; none can be part of a cycle, so the garbage collector need not look at them.
"""

import enum
from typing import Annotated

import msgspec

from pilothouse.model.ids import KeyId, ModelName, OrganisationId, TenantId
from pilothouse.model.units import WallNs

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
"""Tokens, requests or billionths of money: what every JSON reader and Lua can hold exactly."""


class Level(enum.IntEnum):
    """The levels of the hierarchy, from the outside in. A limit of each applies to a request at once."""

    ORGANISATION = 0
    TENANT = 1
    KEY = 2


class Tier(enum.StrEnum):
    """Classes of service, the most urgent first."""

    REALTIME = "realtime"
    STANDARD = "standard"
    BATCH = "batch"


class Scope(enum.StrEnum):
    """What a key may be used for."""

    INFERENCE = "inference"
    """Everything that runs a model."""
    MODELS = "models"
    """Listing the models."""
    USAGE = "usage"
    """Reading the tenant's own usage."""


ALL_SCOPES = tuple(Scope)


class Period(enum.StrEnum):
    """What a budget is counted over, in UTC."""

    DAY = "day"
    MONTH = "month"


class RateLimit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """So much per minute, and at most `burst` at once (`None`: a minute's worth).

    `borrow`: what others leave unused may be had beyond the limit, as long as nobody waits for it.
    """

    per_minute: Count
    burst: Count | None = None
    borrow: bool = False

    @property
    def capacity(self) -> int:
        """What an unused limit allows at once."""
        return self.per_minute if self.burst is None else self.burst


class BudgetLimit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What may be spent in a day or a month of UTC: tokens, or money in billionths of the price list's currency.

    `alarm_ratios` are the shares of it at which an alarm is raised, once in each period.
    """

    period: Period
    tokens: Count | None = None
    nano_money: Count | None = None
    alarm_ratios: Annotated[tuple[float, ...], msgspec.Meta(max_length=16)] = (0.8, 1.0)


class Limits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The limits of one organisation, tenant or key; what is `None` is not limited at this level."""

    requests: RateLimit | None = None
    input_tokens: RateLimit | None = None
    output_tokens: RateLimit | None = None
    total_tokens: RateLimit | None = None
    concurrent_requests: Count | None = None
    budgets: Annotated[tuple[BudgetLimit, ...], msgspec.Meta(max_length=16)] = ()

    @property
    def per_minute(self) -> tuple[RateLimit | None, RateLimit | None, RateLimit | None, RateLimit | None]:
        """The rates: requests, input, output and total tokens."""
        return self.requests, self.input_tokens, self.output_tokens, self.total_tokens


NO_LIMITS = Limits()


class Organisation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who pays. `models` are the public names its tenants may ask for; `None` is all of the fleet."""

    id: OrganisationId
    name: str
    limits: Limits = NO_LIMITS
    models: tuple[ModelName, ...] | None = None


class Tenant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Whose traffic is isolated from others'.

    `weight` is its share of service against other tenants of its tier; `kv_share` is the largest part of a
    deployment's capacity that it may hold while others wait (0 to 1].
    """

    id: TenantId
    organisation: OrganisationId
    name: str
    limits: Limits = NO_LIMITS
    models: tuple[ModelName, ...] | None = None
    tier: Tier = Tier.STANDARD
    weight: float = 1.0
    kv_share: float = 1.0


class Key(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A credential of a tenant, as the data plane knows it. `digest` is HMAC-SHA-256(pepper, key), 32 bytes.

    `networks` are CIDR ranges that it may be used from (`None`: everywhere).
    """

    id: KeyId
    tenant: TenantId
    digest: bytes
    limits: Limits = NO_LIMITS
    models: tuple[ModelName, ...] | None = None
    scopes: tuple[Scope, ...] = ALL_SCOPES
    networks: tuple[str, ...] | None = None
    expires_at: WallNs | None = None


class TenantDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a worker needs to know who asks. `version` grows with every change; revoked keys are not in it."""

    version: int
    organisations: tuple[Organisation, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    keys: tuple[Key, ...] = ()


class DirectoryChange(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a directory of version `base`: values that are new or changed, and ids that are gone."""

    base: int
    version: int
    organisations: tuple[Organisation, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    keys: tuple[Key, ...] = ()
    gone_tenants: tuple[TenantId, ...] = ()
    gone_keys: tuple[KeyId, ...] = ()


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What a model costs, in billionths of a currency unit for a million tokens.

    A price of 0.15 a million is 150_000_000. Cached input tokens cost `cached_input`, or as much as others if `None`.
    """

    input: int = 0
    output: int = 0
    cached_input: int | None = None

    def nano_cost(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int:
        """The cost of a turn in billionths of a currency unit, rounded up."""
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = max(0, input_tokens - cached_tokens)
        cost = fresh * self.input + min(cached_tokens, input_tokens) * cached_price + output_tokens * self.output
        return -(-cost // 1_000_000)
