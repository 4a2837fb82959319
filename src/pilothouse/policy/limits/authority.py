"""Who hands out leases on shared limits, so that many workers together admit no more than one would.

A worker holds part of a limit ahead of its requests and spends it without asking. What it holds is not yet used: a
rate goes on filling up to what its holders leave. The authority charges what workers report as spent, and the whole
of what was held by a worker that is not heard of for a term.

The numbers of a report are totals since the worker began, so that a report that arrives twice, or whose answer is
lost, changes nothing the second time.

An authority that has lost its memory has a new incarnation. When a worker comes with an earlier one, it hands out
nothing new in the first term of its life, in which all workers tell it what they hold and how far the rates were used
(they report twice in a term). What has been spent of budgets it learns from the ledger (`record_used`).

The same steps are in Lua for Redis (`store/redis_authority.lua`); a test holds the two together. Times are whole
microseconds, which Lua's floating point has room for.
"""

from pilothouse.model.leases import LeaseAnswer, LeaseAnswers, LeaseBatch, LeaseReport, LimitKind, SharedLimit

MINUTE_US = 60_000_000


AHEAD_SHARE = 8
"""A worker gets at most an eighth of what is left ahead of its requests: a limit that runs out is not hoarded."""


AWAY_TERMS = 12
"""How long what a worker was charged is known after its lease has ended: a minute."""


class _Lease:
    __slots__ = ("expires_at", "held", "refunded", "spent")

    def __init__(self, spent: int, refunded: int, held: int) -> None:
        self.spent = spent
        self.refunded = refunded
        self.held = held
        self.expires_at = 0


class _LimitState:
    """`used` is a rate's theoretical arrival time in microseconds, of other limits what is used of them.

    `charged` is by how much this memory has moved a rate's time: charges less refunds.
    """

    __slots__ = ("charged", "leases", "period", "returned", "used")

    def __init__(self) -> None:
        self.used = 0
        self.charged = 0
        self.returned = 0
        self.period = 0
        self.leases: dict[str, _Lease] = {}

    def charge(self, tokens: int, per_minute: int, now_us: int) -> None:
        """Take so much from a rate."""
        time = _charge(tokens, per_minute)
        self.used = max(self.used, now_us) + time
        self.charged += time


class LeaseAuthority:
    """The authority in memory: the controller's, for the workers of one host.

    `incarnation` names one life of its memory, which began at `began_us`; `term_us` is how long a lease lasts.
    """

    def __init__(self, incarnation: str, began_us: int, term_us: int) -> None:
        self.incarnation = incarnation
        self._recovers_us = began_us + term_us
        self._has_lost = False
        self.term_us = term_us
        self._states: dict[str, _LimitState] = {}

    def handle(self, batch: LeaseBatch, now_us: int) -> LeaseAnswers:
        """Take a worker's reports, and say what it holds from now on."""
        was_lost = batch.incarnation not in ("", self.incarnation)
        self._has_lost = self._has_lost or was_lost
        may_grant = not self._has_lost or now_us >= self._recovers_us
        answers = tuple(
            self._answer(batch.worker, report, now_us, was_lost=was_lost, may_grant=may_grant)
            for report in batch.reports
        )
        return LeaseAnswers(scope=batch.scope, incarnation=self.incarnation, now_us=now_us, answers=answers)

    def _answer(self, worker: str, report: LeaseReport, now_us: int, *, was_lost: bool, may_grant: bool) -> LeaseAnswer:
        limit = report.limit
        state = self._states.get(limit.name)
        if state is None:
            state = self._states[limit.name] = _LimitState()
        _expire(state, limit, now_us, self.term_us)
        if limit.period > state.period:
            state.period = limit.period
            state.used = 0
            # What was held by workers that are away was of the period before, and so is what they did not spend of it.
            state.leases = {name: lease for name, lease in state.leases.items() if lease.expires_at > now_us}
        lease = state.leases.get(worker)
        if lease is None:
            lease = state.leases[worker] = _meet(report, was_lost=was_lost)
        if was_lost and limit.kind is LimitKind.RATE:
            # All that this memory has charged came after what the earlier one told this worker.
            state.used = max(state.used, report.known_used + state.charged)
            state.returned = max(state.returned, report.known_returned)
        spent = report.spent - lease.spent
        lease.spent = report.spent
        lease.held = max(0, min(lease.held - spent, report.keep))
        if limit.kind is LimitKind.RATE:
            if spent > 0:
                state.charge(spent, limit.limit, now_us)
            _refund(state, lease, report, now_us)
        else:
            state.used += spent
        free = _free(state, limit, now_us)
        if may_grant:
            granted = max(0, min(report.want, free))
            if lease.held + granted < report.need:
                # Too little for any request: with another worker it may be enough.
                free += lease.held
                lease.held = granted = 0
            else:
                granted += max(0, min(report.ahead, (free - granted) // AHEAD_SHARE))
            lease.held += granted
            free -= granted
        else:
            free = 0
        lease.expires_at = now_us + self.term_us
        return LeaseAnswer(
            name=limit.name,
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
            if idle and state.period == 0 and state.used <= now_us:
                del self._states[name]


def _meet(report: LeaseReport, *, was_lost: bool) -> _Lease:
    """A worker without a lease: a new one, one that was away for long, or one of before the memory was lost.

    What it refunds with its first report is not given back: it may have been already, and the answer was lost.
    """
    if report.limit.kind is LimitKind.SLOTS:
        return _Lease(0, 0, report.keep + report.spent)
    if was_lost:
        # Of a budget the ledger had what was of requests that had ended.
        charged = report.known_spent - report.known_under_way
        return _Lease(charged, report.refunded, report.keep + max(0, report.spent - charged))
    return _Lease(report.spent, report.refunded, report.keep)


def _expire(state: _LimitState, limit: SharedLimit, now_us: int, term_us: int) -> None:
    """Of a worker that is not heard of any more all that it held counts as spent; its slots are free.

    What it was charged is known for a while longer: if it comes back, what it had reported is not counted again.
    """
    for worker, lease in list(state.leases.items()):
        if lease.expires_at > now_us:
            continue
        if limit.kind is LimitKind.SLOTS:
            state.used -= lease.spent
            del state.leases[worker]
            continue
        if limit.kind is LimitKind.BUDGET:
            state.used += lease.held
        elif lease.held:
            state.charge(lease.held, limit.limit, now_us)
        lease.spent += lease.held
        lease.held = 0
        if lease.expires_at + AWAY_TERMS * term_us <= now_us:
            del state.leases[worker]


def _refund(state: _LimitState, lease: _Lease, report: LeaseReport, now_us: int) -> None:
    """As `Rate.give_back`: what has drained since the oldest of the refunded reservations is not given back."""
    refunded = report.refunded - lease.refunded
    lease.refunded = report.refunded
    if refunded > 0 and report.limit.limit > 0:
        back = min(refunded * MINUTE_US // report.limit.limit, report.mark - state.returned - now_us)
        if back > 0:
            state.used -= back
            state.charged -= back
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
