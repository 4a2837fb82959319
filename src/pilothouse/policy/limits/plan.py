"""All limits of one key together: reserved at once or not at all.

A plan is made of limits that several plans share: those of an organisation are in the plans of all its keys.
"""

from collections.abc import Iterable, Sequence

from pilothouse.policy.limits.decision import RATE_WINDOWS, BudgetAlarm, LimitRefusal, Window, WindowStatus
from pilothouse.policy.limits.reservation import Demand, Reservation
from pilothouse.policy.limits.windows import TOKEN, Budget, Concurrency, Rate

_MILLISECOND = 1_000_000
_SECOND = 1_000_000_000

BORROW_HEADROOM = 2
"""Borrowers may fill half of the limits above the one they pass. Whoever has a right to these finds half of a burst
free, and all of it half a window after borrowing has ended."""

_UNLIMITED = 1 << 62
_BORROWED = -1  # a mark that no rate has


class LimitPlan:
    """The limits that apply to the requests of one key, from the organisation's to its own."""

    __slots__ = ("_budgets", "_concurrency", "_output_capacity", "_rates", "_total_capacity")

    def __init__(
        self, rates: Sequence[Rate], concurrency: Sequence[Concurrency] = (), budgets: Sequence[Budget] = ()
    ) -> None:
        self._rates = tuple((rate, RATE_WINDOWS.index(rate.window)) for rate in rates)
        self._concurrency = tuple(concurrency)
        self._budgets = tuple(budgets)
        bursts = [(rate.window, rate.burst // TOKEN) for rate in rates]
        self._output_capacity = least_capacity(bursts, Window.OUTPUT_TOKENS)
        self._total_capacity = least_capacity(bursts, Window.TOTAL_TOKENS)

    def reserve(self, demand: Demand, now: int, wall: int) -> Reservation | LimitRefusal:
        """Take what the request asks for from every limit, or say which limit is in the way and take nothing.

        An expected output that alone is more than a limit holds is cut to that, so that a small limit can be used at
        all; what the request then uses beyond it is owed (see `settle`). `now` and `wall` in nanoseconds.
        """
        asked, output, nano_cost = demand.input_tokens, demand.output_tokens, demand.nano_cost
        if output > self._output_capacity or asked + output > self._total_capacity:
            output = max(1, min(output, self._output_capacity, self._total_capacity - asked))
        tokens = asked + output
        for slots in self._concurrency:
            if slots.active >= slots.limit:
                return _at_once(slots)
        if self._budgets:
            refusal = self._over_budget(tokens, nano_cost, wall)
            if refusal is not None:
                return refusal
        charges = (TOKEN, asked * TOKEN, output * TOKEN, tokens * TOKEN)
        marks = []
        for rate, index in self._rates:
            tat = rate.tat
            start = now * rate.per_minute
            if tat < start:
                tat = start
            tat += charges[index]
            if tat - start > rate.burst:
                found = self._past_rates(charges, now, idle=demand.idle)
                if isinstance(found, LimitRefusal):
                    return found
                marks = found
                break
            marks.append(tat)
        # Nothing has been taken until here, and nothing can be refused from here on.
        for at, (rate, _) in enumerate(self._rates):
            tat = marks[at]
            if tat == _BORROWED:
                rate.tat = now * rate.per_minute + max(rate.burst, rate.backlog(now))
            else:
                rate.tat = tat
                marks[at] = tat + rate.returned
        for slots in self._concurrency:
            slots.active += 1
        for budget in self._budgets:
            budget.used += nano_cost if budget.money else tokens
        return Reservation(self, wall, marks, asked, output, nano_cost, _BORROWED in marks)

    def settle(
        self, reservation: Reservation, now: int, input_tokens: int, output_tokens: int, nano_cost: int, requests: int
    ) -> tuple[BudgetAlarm, ...]:
        """Replace what was reserved by what was used, for a reservation's own methods.

        What was not used is given back, what was used beyond it is owed: nothing is admitted before it has drained.
        What was borrowed is neither.
        """
        tokens = input_tokens + output_tokens
        reserved = reservation.input_tokens + reservation.output_tokens
        owed = (
            requests - 1,
            input_tokens - reservation.input_tokens,
            output_tokens - reservation.output_tokens,
            tokens - reserved,
        )
        marks = reservation.marks
        for at, (rate, index) in enumerate(self._rates):
            more = owed[index]
            if more and marks[at] != _BORROWED:
                if more > 0:
                    rate.tat += more * TOKEN
                else:
                    rate.give_back(-more * TOKEN, marks[at], now)
        self.leave(reservation)
        if not self._budgets:
            return ()
        alarms: list[BudgetAlarm] = []
        for budget in self._budgets:
            if reservation.wall >= budget.starts:  # else it was counted in a period that is over
                budget.used += nano_cost - reservation.nano_cost if budget.money else tokens - reserved
                alarms += budget.take_alarms()
        return tuple(alarms)

    def leave(self, reservation: Reservation) -> None:
        """A request is no longer under way."""
        for slots in self._concurrency:
            slots.active -= 1

    def status(self, window: Window, now: int) -> WindowStatus | None:
        """The level of a rate that has least left, for the x-ratelimit headers; `None` if no level limits it."""
        rates = [rate for rate, _ in self._rates if rate.window is window]
        if not rates:
            return None
        rate = min(rates, key=lambda each: each.remaining(now))
        reset = -(-rate.backlog(now) // rate.per_minute) if rate.per_minute else 0
        return WindowStatus(limit=rate.per_minute, remaining=rate.remaining(now), reset_ms=-(-reset // _MILLISECOND))

    def _over_budget(self, tokens: int, nano_cost: int, wall: int) -> LimitRefusal | None:
        for budget in self._budgets:
            if wall >= budget.ends:
                budget.enter(wall)
            asked = nano_cost if budget.money else tokens
            if budget.used + asked > budget.limit:
                return _refusal(budget, budget.limit, asked, budget.limit - budget.used, budget.ends - wall)
        return None

    def _past_rates(self, charges: tuple[int, ...], now: int, *, idle: bool) -> list[int] | LimitRefusal:
        """What each rate's `tat` becomes if those in the way may be passed; else the refusal that lasts longest.

        They may while the fleet is idle, each of them allows it, and the other limits stay half empty.
        """
        tats, in_the_way, may_pass = [], [], idle
        for rate, index in self._rates:
            backlog = rate.backlog(now)
            used = backlog + charges[index]
            if used > rate.burst:
                in_the_way.append(_over_rate(rate, charges[index], backlog))
                may_pass = may_pass and rate.borrow
                tats.append(_BORROWED)
            else:
                may_pass = may_pass and (rate.borrow or used * BORROW_HEADROOM <= rate.burst)
                tats.append(now * rate.per_minute + used)
        if may_pass:
            return tats
        return longest_wait(in_the_way)


def _at_once(slots: Concurrency) -> LimitRefusal:
    # When a request ends is not known; a second is the shortest wait that the header can say.
    return _refusal(slots, slots.limit, 1, 0, _SECOND)


def _over_rate(rate: Rate, charge: int, backlog: int) -> LimitRefusal:
    wait = None
    if charge <= rate.burst:
        wait = (backlog + charge - rate.burst) // rate.per_minute
    left = max(0, rate.burst - backlog) // TOKEN
    return _refusal(rate, rate.per_minute, charge // TOKEN, left, wait)


def _refusal(
    limited: Rate | Concurrency | Budget, limit: int, asked: int, remaining: int, wait_ns: int | None
) -> LimitRefusal:
    return LimitRefusal(
        level=limited.level,
        window=limited.window,
        limit=limit,
        asked=asked,
        remaining=max(0, remaining),
        retry_after_s=None if wait_ns is None else max(1, -(-wait_ns // _SECOND)),
    )


def least_capacity(bursts: Iterable[tuple[Window, int]], window: Window) -> int:
    """What the tightest limit of a window holds when it is full; a very large number if there is none."""
    return min((burst for each, burst in bursts if each is window), default=_UNLIMITED)


def longest_wait(refusals: Iterable[LimitRefusal]) -> LimitRefusal:
    """Of several limits in the way, the one that is in the way longest."""
    return max(refusals, key=lambda each: _UNLIMITED if each.retry_after_s is None else each.retry_after_s)
