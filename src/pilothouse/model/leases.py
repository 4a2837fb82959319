"""What workers and the keeper of shared limits say to each other. See `policy/limits/authority.py`."""

import enum

import msgspec


class LimitKind(enum.StrEnum):
    """How a limit fills up again."""

    RATE = "rate"
    """By `limit` a minute, up to `burst`."""
    SLOTS = "slots"
    """When requests end."""
    BUDGET = "budget"
    """With the next period."""


class SharedLimit(msgspec.Struct, frozen=True, kw_only=True):
    """One limit of one organisation, tenant or key. `period` is the start of a budget's day or month (0 for others)."""

    name: str
    kind: LimitKind
    limit: int
    burst: int = 0
    period: int = 0


class LeaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of its part of a limit.

    `spent` and `refunded` are totals since the worker began; of slots and budgets unspent reservations lower `spent`
    instead, so that a worker's `spent` slots are those in use. `mark` is the oldest mark of the reservations that were
    refunded since the last answer. `keep` is what the worker holds unspent and does not give back, `want` what requests
    wait for beside it, `need` the least of that for which a request can go, and `ahead` what the worker would like to
    have for those to come. The `known_*` are what the last answer said; `known_under_way` is the part of `known_spent`
    of a budget that the ledger did not have then, for it was of requests under way.
    """

    limit: SharedLimit
    spent: int = 0
    refunded: int = 0
    mark: int = 0
    keep: int = 0
    want: int = 0
    need: int = 0
    ahead: int = 0
    known_spent: int = 0
    known_under_way: int = 0
    known_used: int = 0
    known_returned: int = 0


class LeaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Reports of one worker on limits of one organisation. `worker` names one life of one process.

    `incarnation` is that of the authority's last answer, "" if there was none.
    """

    worker: str
    scope: str
    incarnation: str
    reports: tuple[LeaseReport, ...] = ()


class LeaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker holds from now on, for a term, and what nobody holds (`left`). The rest it has to tell back."""

    name: str
    held: int
    left: int
    spent: int
    refunded: int
    used: int
    returned: int


class LeaseAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a batch, at `now_us` of the authority's own clock."""

    scope: str
    incarnation: str
    now_us: int
    answers: tuple[LeaseAnswer, ...] = ()
