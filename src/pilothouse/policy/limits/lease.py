"""A worker's part of one shared limit: what it may spend without asking, and what it has to tell."""

import enum
import math

import msgspec

from pilothouse.model.leases import LeaseAnswer, LeaseReport, LimitKind, SharedLimit
from pilothouse.model.tenants import BudgetLimit, Level, RateLimit
from pilothouse.model.units import SECOND, DurationNs, WallNs
from pilothouse.policy.limits.decision import MONEY_WINDOWS, LimitRefusal, Window
from pilothouse.policy.limits.windows import TOKEN, Rate, period_of

_HORIZON_S = 0.5
"""A worker holds what it spends in half a second: enough not to ask for every request, too little to be missed."""

_MEMORY = SECOND  # over which the pace of spending is taken
_NO_MARK = 1 << 62
_LONGEST = 1 << 62


class FailMode(enum.StrEnum):
    """What a worker does while it has no lease because the authority does not answer."""

    CLOSED = "closed"
    """Admit nothing that a shared limit counts."""
    OPEN = "open"
    """Admit up to a declared part of the limit."""


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How leases are kept.

    `term` is the authority's. A worker stops using a lease `margin` before its end, for clocks that run apart.
    `open_ratio` is the part of a limit that each worker may admit without a lease, in `FailMode.OPEN`.
    """

    term: DurationNs = DurationNs(5 * SECOND)
    margin: DurationNs = DurationNs(SECOND // 2)
    fail_mode: FailMode = FailMode.CLOSED
    open_ratio: float = 0.0


class Mark:
    """Tells the authority how much of a reservation had drained when it was refunded: `used + returned` of a rate.

    One for all reservations between two reports. Until the answer to the report that has them its value is an earlier
    one, which is on the safe side.
    """

    __slots__ = ("reported", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self.reported = False


class Lease:
    """What this worker holds of one limit: `credit` tokens, requests or money, to be spent until `expires_at`.

    `spent` and `refunded` are totals; `mark` is for the reservations since the last report.
    """

    __slots__ = (
        "_drains_at",
        "_followed_at",
        "_followed_spent",
        "_is_fresh",
        "_known_under_way",
        "_last",
        "_pace",
        "_refund_mark",
        "_reported_asked",
        "_reported_mark",
        "_reported_under_way",
        "_spec",
        "asked",
        "credit",
        "expires_at",
        "least_asked",
        "left",
        "level",
        "limit",
        "mark",
        "period_ends",
        "refunded",
        "spare",
        "spent",
        "under_way",
        "window",
    )

    def __init__(self, level: Level, subject: str, window: Window, spec: RateLimit | BudgetLimit | int) -> None:
        self.level = level
        self.window = window
        self._spec = spec
        self.limit = _shared(shared_name(level, subject, window), window, spec)
        self.period_ends = 0 if self.limit.kind is LimitKind.BUDGET else _LONGEST
        self.credit = 0
        self.expires_at = 0
        self.spent = 0
        self.under_way = 0  # of a budget: what requests under way have reserved
        self._reported_under_way = 0
        self._known_under_way = 0
        self.refunded = 0
        self.mark = Mark(0)
        self._reported_mark = self.mark
        self.left = 0
        self.asked = 0
        self._reported_asked = 0
        self._is_fresh = False  # the last report was answered
        self.least_asked = 0
        self.spare: Spare | None = None
        self._refund_mark = _NO_MARK
        self._last = _NO_ANSWER
        self._drains_at = 0
        self._pace = 0.0
        self._followed_at = 0
        self._followed_spent = 0

    def ask(self, amount: int) -> None:
        """A request waits for so much."""
        self.least_asked = min(self.least_asked, amount) if self.asked else amount
        self.asked += amount

    def enter_period(self, wall: int) -> None:
        """A budget's day or month has begun."""
        assert isinstance(self._spec, BudgetLimit)
        starts, self.period_ends = period_of(self._spec.period, WallNs(wall))
        self.limit = msgspec.structs.replace(self.limit, period=starts)
        self._last = msgspec.structs.replace(self._last, used=0)
        self.under_way = self._reported_under_way = self._known_under_way = 0

    def change(self, spec: RateLimit | BudgetLimit | int) -> None:
        """Go on under another limit."""
        self._spec = spec
        self.limit = msgspec.structs.replace(_shared(self.limit.name, self.window, spec), period=self.limit.period)
        self.spare = None

    def give_back(self, amount: int, mark: Mark) -> None:
        """A reservation did not need so much. What the authority has charged already comes back through it."""
        if mark.reported and self.limit.kind is LimitKind.RATE:
            self.refunded += amount
            self._refund_mark = min(self._refund_mark, mark.value)
        else:
            self.spent -= amount
            self.credit += amount

    def has_news(self, now: int, settings: LeaseSettings) -> bool:
        """Whether the authority has to hear of it: something was spent, is wanted or not needed, or the end is near.

        To be called once for each collection: it also follows the pace at which the lease is spent.
        """
        passed, spent = now - self._followed_at, self.spent - self._followed_spent
        self._followed_at, self._followed_spent = now, self.spent
        self._pace = self._pace * math.exp(-passed / _MEMORY) + max(0, spent) * (SECOND / _MEMORY)
        return bool(
            self.asked
            or self.has_unreported
            or self.credit > self._ahead
            or ((self.is_held or now < self._drains_at) and self.expires_at - now < settings.term // 2)
        )

    @property
    def has_unreported(self) -> bool:
        """Whether the authority does not know yet what was spent, and what of it is in the ledger."""
        return (
            self.spent != self._last.spent
            or self.refunded != self._last.refunded
            or self.under_way != self._known_under_way
        )

    def is_known(self, now: int) -> bool:
        """Whether an authority that has lost its memory needs to be told of it."""
        return self.is_held or self.has_unreported or now < self._drains_at

    @property
    def is_held(self) -> bool:
        """Whether the authority counts something as this worker's."""
        return self.credit > 0 or self.under_way > 0 or (self.limit.kind is LimitKind.SLOTS and self.spent > 0)

    @property
    def _ahead(self) -> int:
        return int(self._pace * _HORIZON_S)

    def report(self, now: int) -> LeaseReport:
        """What to tell the authority. What is not kept is not spent from here on either."""
        self.mark.reported = True
        self._reported_mark = self.mark
        self._reported_asked = self.asked
        self._reported_under_way = self.under_way
        self.mark = Mark(self.mark.value)
        self.credit = min(self.credit, max(self.asked, self._ahead) if now < self.expires_at else 0)
        if self.asked and self.credit < self.least_asked:
            # Too little for any of the requests that wait. The authority may give it to another worker, and its answer
            # may be lost: so it is given back here, and comes back with the answer if that is enough.
            self.credit = 0
        want = max(0, self.asked - self.credit)
        return LeaseReport(
            limit=self.limit,
            spent=self.spent,
            refunded=self.refunded,
            mark=self._refund_mark if self.refunded != self._last.refunded else 0,
            keep=max(0, self.credit),
            want=want,
            need=self.least_asked if self.asked else 0,
            ahead=max(0, self._ahead - self.credit - want),
            known_spent=self._last.spent,
            known_under_way=self._known_under_way,
            known_used=self._last.used,
            known_returned=self._last.returned,
        )

    def accept(self, answer: LeaseAnswer, sent_at: int, answered_us: int, settings: LeaseSettings) -> None:
        """The answer to the report that was sent at `sent_at`, given at `answered_us` of the authority's clock."""
        self.credit = answer.held - (self.spent - answer.spent)
        self.expires_at = sent_at + settings.term - settings.margin
        self._reported_mark.value = self.mark.value = answer.used + answer.returned
        self.left = answer.left
        self._have_been_told()
        self._is_fresh = True
        self.spare = None
        if self.limit.kind is LimitKind.RATE:
            self._drains_at = sent_at + (answer.used - answered_us) * 1000
        self._last = answer
        self._known_under_way = self._reported_under_way
        if answer.refunded == self.refunded:
            self._refund_mark = _NO_MARK

    def unanswered(self) -> None:
        """There was no answer to the report."""
        self._is_fresh = False
        self._have_been_told()

    def _have_been_told(self) -> None:
        # Who asked since the report waits for the next one.
        self.asked -= self._reported_asked
        self._reported_asked = 0

    def may_have_more(self, amount: int) -> bool:
        """Whether the authority, by its last answer, can give so much; not if it did not answer."""
        return self._is_fresh and max(0, self.credit) + self.left >= amount

    def shortage(self, amount: int, now: int, wall: int) -> LimitRefusal:
        """Why a request for `amount` is refused after the authority was asked."""
        lapsed = now >= self.expires_at
        free = 0 if lapsed else max(0, self.credit) + self.left
        limit = self.limit
        wait: int | None = SECOND
        if limit.kind is LimitKind.BUDGET:
            wait = self.period_ends - wall
        elif limit.kind is LimitKind.RATE and not lapsed:
            fits = amount <= limit.burst and limit.limit > 0
            wait = (amount - free) * TOKEN // limit.limit if fits else None
        return LimitRefusal(
            level=self.level,
            window=self.window,
            limit=limit.limit,
            asked=amount,
            remaining=free,
            retry_after_s=None if wait is None else max(1, -(-wait // SECOND)),
            unavailable=lapsed,
        )


class Spare:
    """What a worker may admit without a lease: a part of the limit, on its own account."""

    __slots__ = ("_kind", "_left", "_rate")

    def __init__(self, lease: Lease, ratio: float) -> None:
        limit = lease.limit
        self._kind = limit.kind
        self._left = int(limit.limit * ratio)
        self._rate: Rate | None = None
        if limit.kind is LimitKind.RATE:
            part = RateLimit(per_minute=int(limit.limit * ratio), burst=int(limit.burst * ratio))
            self._rate = Rate(lease.level, lease.window, part)

    def has(self, amount: int, now: int) -> bool:
        """Whether so much may be had."""
        if self._rate is not None:
            return self._rate.backlog(now) + amount * TOKEN <= self._rate.burst
        return amount <= self._left

    def take(self, amount: int, now: int) -> None:
        """Use it up."""
        if self._rate is not None:
            self._rate.tat = now * self._rate.per_minute + self._rate.backlog(now) + amount * TOKEN
        else:
            self._left -= amount

    def give_back(self, amount: int) -> None:
        """A request that had so much has ended. Only slots come back."""
        if self._kind is LimitKind.SLOTS:
            self._left += amount


_NO_ANSWER = LeaseAnswer(name="", held=0, left=0, spent=0, refunded=0, used=0, returned=0)


def shared_name(level: Level, subject: str, window: Window) -> str:
    """What the authority calls a limit."""
    return f"{level.name}:{subject}:{window.name}".lower()


def _shared(name: str, window: Window, spec: RateLimit | BudgetLimit | int) -> SharedLimit:
    if isinstance(spec, RateLimit):
        return SharedLimit(name=name, kind=LimitKind.RATE, limit=spec.per_minute, burst=spec.capacity)
    if isinstance(spec, int):
        return SharedLimit(name=name, kind=LimitKind.SLOTS, limit=spec)
    limit = spec.nano_money if window in MONEY_WINDOWS else spec.tokens
    assert limit is not None
    return SharedLimit(name=name, kind=LimitKind.BUDGET, limit=limit)
