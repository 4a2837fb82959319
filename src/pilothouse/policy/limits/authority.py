"""Who hands out leases on shared limits, so that many workers together admit no more than one would.

A worker holds part of a limit ahead of its requests and spends it without asking. What it holds is not yet used: a
rate goes on filling up to what its holders leave. The authority charges what workers report as spent, and the whole
of what was held by a worker that is not heard of for a term.

The numbers of a report are totals since the worker began, so that a report that arrives twice, or whose answer is
lost, changes nothing the second time. An authority that has lost its memory is told by the workers what they hold and
how far a rate was used; until all of them have had a term to do so it hands out nothing new of that limit.

The same steps are in Lua for Redis (`store/redis_authority.lua`); a test holds the two together. Times are whole
microseconds, which Lua's floating point has room for.
"""

import enum

import msgspec

MINUTE_US = 60_000_000


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
    refunded since the last answer. `keep` is what the worker holds unspent and does not give back, `want` what it
    would like to have beside it. The rest is what the last answer said, from `incarnation` "" if there was none.
    """

    limit: SharedLimit
    spent: int = 0
    refunded: int = 0
    mark: int = 0
    keep: int = 0
    want: int = 0
    incarnation: str = ""
    known_spent: int = 0
    known_refunded: int = 0
    known_used: int = 0
    known_returned: int = 0


class LeaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker holds from now on, for a term, and what nobody holds (`left`).

    `incarnation` changes when the authority has lost its memory; `used` and `returned` are for the worker to tell then.
    """

    name: str
    incarnation: str
    held: int
    left: int
    spent: int
    refunded: int
    used: int
    returned: int


class _Lease:
    __slots__ = ("expires_at", "held", "refunded", "spent")

    def __init__(self, spent: int, refunded: int, held: int) -> None:
        self.spent = spent
        self.refunded = refunded
        self.held = held
        self.expires_at = 0


class _LimitState:
    """`used` is a rate's theoretical arrival time in microseconds, of other limits what is used of them."""

    __slots__ = ("leases", "period", "recovers_at", "returned", "used")

    def __init__(self) -> None:
        self.used = 0
        self.returned = 0
        self.period = 0
        self.recovers_at = 0
        self.leases: dict[str, _Lease] = {}


class LeaseAuthority:
    """The authority in memory: the controller's, for the workers of one host.

    `incarnation` names one life of its memory, `term_us` is how long a lease lasts.
    """

    def __init__(self, incarnation: str, term_us: int) -> None:
        self.incarnation = incarnation
        self.term_us = term_us
        self._states: dict[str, _LimitState] = {}

    def handle(self, worker: str, report: LeaseReport, now_us: int) -> LeaseAnswer:
        """Take a worker's report, and say what it holds from now on. `worker` names one life of one process."""
        limit = report.limit
        state = self._states.get(limit.name)
        if state is None:
            state = self._states[limit.name] = _LimitState()
        _expire(state, limit, now_us)
        if limit.period > state.period:
            state.period = limit.period
            state.used = 0
        lease = state.leases.get(worker)
        if lease is None:
            lease = state.leases[worker] = self._meet(state, report, now_us)
        spent = report.spent - lease.spent
        lease.spent = report.spent
        lease.held = max(0, min(lease.held - spent, report.keep))
        if limit.kind is LimitKind.RATE:
            if spent > 0:
                state.used = max(state.used, now_us) + _charge(spent, limit.limit)
            _refund(state, lease, report, now_us)
        else:
            state.used += spent
        free = _free(state, limit, now_us)
        if now_us >= state.recovers_at:
            granted = max(0, min(report.want, free))
            lease.held += granted
            free -= granted
        lease.expires_at = now_us + self.term_us
        return LeaseAnswer(
            name=limit.name,
            incarnation=self.incarnation,
            held=lease.held,
            left=max(0, free),
            spent=lease.spent,
            refunded=lease.refunded,
            used=state.used,
            returned=state.returned,
        )

    def record_used(self, name: str, period: int, used: int) -> None:
        """What the ledger says has been used of a budget: after a start, or after a worker has died with a lease."""
        state = self._states.setdefault(name, _LimitState())
        state.period = max(state.period, period)
        if state.period == period:
            state.used = used

    def forget(self, now_us: int) -> None:
        """Give up limits that are as if never used. To be called now and then."""
        for name, state in list(self._states.items()):
            idle = all(lease.expires_at <= now_us and not lease.held for lease in state.leases.values())
            if idle and state.period == 0 and state.used <= now_us and state.recovers_at <= now_us:
                del self._states[name]

    def _meet(self, state: _LimitState, report: LeaseReport, now_us: int) -> _Lease:
        """A worker without a lease: a new one, one whose lease has ended, or one of before the memory was lost."""
        if report.limit.kind is LimitKind.SLOTS:
            lease = _Lease(0, 0, report.keep + report.spent)
        elif report.incarnation == self.incarnation and not report.keep:
            # When its lease ended, all that it held was charged.
            lease = _Lease(report.spent, report.known_refunded, 0)
        else:
            unreported = max(0, report.spent - report.known_spent)
            lease = _Lease(report.known_spent, report.known_refunded, report.keep + unreported)
        if report.incarnation not in ("", self.incarnation):
            if report.limit.kind is not LimitKind.SLOTS:
                state.used = max(state.used, report.known_used)
                state.returned = max(state.returned, report.known_returned)
            if lease.held:
                state.recovers_at = now_us + self.term_us
        return lease


def _expire(state: _LimitState, limit: SharedLimit, now_us: int) -> None:
    """Of a worker that is not heard of any more all that it held counts as spent; its slots are free."""
    for worker, lease in list(state.leases.items()):
        if lease.expires_at <= now_us:
            del state.leases[worker]
            if limit.kind is LimitKind.SLOTS:
                state.used -= lease.spent
            elif limit.kind is LimitKind.BUDGET:
                state.used += lease.held
            elif lease.held:
                state.used = max(state.used, now_us) + _charge(lease.held, limit.limit)


def _refund(state: _LimitState, lease: _Lease, report: LeaseReport, now_us: int) -> None:
    """As `Rate.give_back`: what has drained since the oldest of the refunded reservations is not given back."""
    refunded = report.refunded - lease.refunded
    lease.refunded = report.refunded
    if refunded > 0 and report.limit.limit > 0:
        back = min(refunded * MINUTE_US // report.limit.limit, report.mark - state.returned - now_us)
        if back > 0:
            state.used -= back
            state.returned += back


def _free(state: _LimitState, limit: SharedLimit, now_us: int) -> int:
    """What nobody has used or holds."""
    held = sum(lease.held for lease in state.leases.values())
    if limit.kind is not LimitKind.RATE:
        return limit.limit - state.used - held
    backlog = max(0, state.used - now_us)
    return limit.burst - -(-backlog * limit.limit // MINUTE_US) - held


def _charge(tokens: int, per_minute: int) -> int:
    """How long a rate needs for so many tokens, in microseconds, rounded up."""
    return -(-tokens * MINUTE_US // per_minute) if per_minute > 0 else 0
