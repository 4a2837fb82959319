"""All limits of one key when workers share them: the counterpart of `LimitPlan`, from what this worker holds.

A request that this worker has no credit for is not refused: the authority may have more. `reserve` then answers `ASK`,
the request waits for one exchange with the authority, and is tried once more with `asked=True`. That seldom asks again.
"""

import enum
from collections.abc import Sequence
from typing import Final

from pilothouse.model.leases import LimitKind
from pilothouse.policy.limits.decision import BudgetAlarm, LimitRefusal, Window, WindowStatus
from pilothouse.policy.limits.lease import FailMode, Lease, LeaseSettings, Mark, Spare
from pilothouse.policy.limits.plan import least_capacity, longest_wait
from pilothouse.policy.limits.reservation import Demand, Reservation


class Ask(enum.Enum):
    """The authority has to be asked first."""

    ASK = enum.auto()


ASK: Final = Ask.ASK

_TOKENS = 3
_AMOUNT_INDEX = {
    Window.REQUESTS: 0,
    Window.INPUT_TOKENS: 1,
    Window.OUTPUT_TOKENS: 2,
    Window.TOTAL_TOKENS: _TOKENS,
    Window.CONCURRENCY: 0,
    Window.TOKENS_PER_DAY: _TOKENS,
    Window.TOKENS_PER_MONTH: _TOKENS,
    Window.MONEY_PER_DAY: 4,
    Window.MONEY_PER_MONTH: 4,
}


class LeasedPlan:
    """The limits that apply to the requests of one key. `scope` is the organisation they all belong to.

    It puts itself into `touched` when there may be something to tell the authority.
    """

    __slots__ = (
        "_amounts",
        "_budgets",
        "_output_capacity",
        "_settings",
        "_slots",
        "_total_capacity",
        "_touched",
        "leases",
        "scope",
    )

    def __init__(
        self, leases: Sequence[Lease], settings: LeaseSettings, touched: "set[LeasedPlan]", *, scope: str
    ) -> None:
        self.scope = scope
        self.leases = tuple((lease, _AMOUNT_INDEX[lease.window]) for lease in leases)
        # Where in the marks of a reservation, and what of its amounts: of requests at once, and of everything else.
        self._slots = tuple((at, each) for at, (each, _) in enumerate(self.leases) if each.window is Window.CONCURRENCY)
        self._amounts = tuple(
            (at, each, index) for at, (each, index) in enumerate(self.leases) if each.window is not Window.CONCURRENCY
        )
        self._budgets = tuple(
            (at, each, index) for at, each, index in self._amounts if each.limit.kind is LimitKind.BUDGET
        )
        self._settings = settings
        self._touched = touched
        bursts = [(lease.window, lease.limit.burst) for lease in leases]
        self._output_capacity = least_capacity(bursts, Window.OUTPUT_TOKENS)
        self._total_capacity = least_capacity(bursts, Window.TOTAL_TOKENS)

    def reserve(self, demand: Demand, now: int, wall: int, *, asked: bool = False) -> Reservation | LimitRefusal | Ask:
        """As `LimitPlan.reserve`; `asked`: the authority has answered, or did not in time, since the last try."""
        inputs, output, nano_cost = demand.input_tokens, demand.output_tokens, demand.nano_cost
        if output > self._output_capacity or inputs + output > self._total_capacity:
            output = max(1, min(output, self._output_capacity, self._total_capacity - inputs))
        amounts = (1, inputs, output, inputs + output, nano_cost)
        for lease, index in self.leases:
            if lease.credit < amounts[index] or now >= lease.expires_at or wall >= lease.period_ends:
                return self._reserve_without_credit(amounts, now, wall, asked=asked)
        marks = []
        for lease, index in self.leases:
            amount = amounts[index]
            lease.credit -= amount
            lease.spent += amount
            marks.append(lease.mark)
        for _, lease, index in self._budgets:
            lease.under_way += amounts[index]
        self._touched.add(self)
        return Reservation(self, wall, marks, inputs, output, nano_cost)

    def _reserve_without_credit(
        self, amounts: tuple[int, int, int, int, int], now: int, wall: int, *, asked: bool
    ) -> Reservation | LimitRefusal | Ask:
        for lease, index in self.leases:
            if wall >= lease.period_ends:
                lease.enter_period(wall)
            if lease.credit < amounts[index] or now >= lease.expires_at:
                refusal = self._short(amounts, now, wall, asked=asked)
                if refusal is not None:
                    return refusal
                break
        marks: list[Mark | None] = []
        for lease, index in self.leases:
            amount = amounts[index]
            if now < lease.expires_at:
                lease.credit -= amount
                lease.spent += amount
                marks.append(lease.mark)
            else:
                assert lease.spare is not None
                lease.spare.take(amount, now)
                marks.append(None)
        for at, lease, index in self._budgets:
            if marks[at] is not None:
                lease.under_way += amounts[index]
        self._touched.add(self)
        _, inputs, output, _, nano_cost = amounts
        return Reservation(self, wall, marks, inputs, output, nano_cost)

    def settle(
        self, reservation: Reservation, now: int, input_tokens: int, output_tokens: int, nano_cost: int, requests: int
    ) -> tuple[BudgetAlarm, ...]:
        """As `LimitPlan.settle`. The alarms of shared budgets are raised by whoever keeps the ledger."""
        owed = (
            requests - 1,
            input_tokens - reservation.input_tokens,
            output_tokens - reservation.output_tokens,
            input_tokens + output_tokens - reservation.input_tokens - reservation.output_tokens,
            nano_cost - reservation.nano_cost,
        )
        marks = reservation.marks
        for at, lease, index in self._amounts:
            more, mark = owed[index], marks[at]
            if not more or mark is None or lease.limit.period > reservation.wall:
                continue  # nothing to be changed, or counted in a period that is over
            if more > 0:
                lease.spent += more
                lease.credit -= more
            else:
                lease.give_back(-more, mark)
        self.leave(reservation)
        return ()

    def leave(self, reservation: Reservation) -> None:
        """A request is no longer under way."""
        if self._budgets:
            tokens = reservation.input_tokens + reservation.output_tokens
            for at, lease, index in self._budgets:
                if reservation.marks[at] is not None and lease.limit.period <= reservation.wall:
                    lease.under_way -= tokens if index == _TOKENS else reservation.nano_cost
        for at, lease in self._slots:
            mark = reservation.marks[at]
            if mark is not None:
                lease.give_back(1, mark)
            elif lease.spare is not None:
                lease.spare.give_back(1)
        self._touched.add(self)

    def status(self, window: Window, now: int) -> WindowStatus | None:
        """As `LimitPlan.status`, as of the authority's last answer."""
        leases = [lease for lease, _ in self.leases if lease.window is window]
        if not leases:
            return None
        lease = min(leases, key=lambda each: each.credit + each.left)
        limit, remaining = lease.limit, max(0, lease.credit + lease.left)
        missing = max(0, limit.burst - remaining)
        return WindowStatus(
            limit=limit.limit,
            remaining=remaining,
            reset_ms=missing * 60_000 // limit.limit if limit.kind is LimitKind.RATE and limit.limit else 0,
        )

    def _short(self, amounts: tuple[int, ...], now: int, wall: int, *, asked: bool) -> LimitRefusal | Ask | None:
        """Some lease is short. `None` if what may be admitted without a lease makes up for it."""
        short = [(lease, amounts[index]) for lease, index in self.leases if not self._has(lease, amounts[index], now)]
        if not short:
            return None
        if asked:
            refused = [each for each in short if not each[0].may_have_more(each[1])]
            if refused:
                return longest_wait([lease.shortage(amount, now, wall) for lease, amount in refused])
            # What the authority gave for this request another one took, which did not have to ask. There is more.
        # Also of those that have enough: else they would give back what they hold beyond their pace, and lack it then.
        for lease, index in self.leases:
            lease.ask(amounts[index])
        self._touched.add(self)
        return ASK

    def _has(self, lease: Lease, amount: int, now: int) -> bool:
        if now < lease.expires_at:
            return lease.credit >= amount
        return lease.spare is not None and lease.spare.has(amount, now)

    def fall_back(self, now: int) -> None:
        """The authority does not answer: what has no lease may admit a part of its limit, if the operator said so."""
        if self._settings.fail_mode is FailMode.OPEN:
            for lease, _ in self.leases:
                if now >= lease.expires_at and lease.spare is None:
                    lease.spare = Spare(lease, self._settings.open_ratio)
