"""The state of single limits: a rate, a number of requests at once, and a budget of a day or a month.

A rate is a token bucket in the form of the generic cell rate algorithm (ITU-T I.371): one number, the theoretical
arrival time, instead of a level and the time it was taken at. It is kept multiplied by the limit, so that all
arithmetic is exact in integers: one unit is a nanosecond times a token per minute, and a token costs 60 * 10^9.
"""

import datetime as dt

from pilothouse.model.tenants import BudgetLimit, Level, Period, RateLimit
from pilothouse.model.units import SECOND, WallNs
from pilothouse.policy.limits.decision import BudgetAlarm, Window

TOKEN = 60 * SECOND
"""What a token (or a request) costs in the units of a rate: a minute, since limits are per minute."""

BUDGET_WINDOW_OF = {
    (Period.DAY, False): Window.TOKENS_PER_DAY,
    (Period.DAY, True): Window.MONEY_PER_DAY,
    (Period.MONTH, False): Window.TOKENS_PER_MONTH,
    (Period.MONTH, True): Window.MONEY_PER_MONTH,
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Rate:
    """A limit per minute.

    `tat` and `burst` are in units (see above); the bucket's backlog is `tat - now * per_minute`, never above `burst`
    by an admission. `returned` is the sum of what reservations gave back.
    """

    __slots__ = ("borrow", "burst", "level", "per_minute", "returned", "tat", "window")

    def __init__(self, level: Level, window: Window, limit: RateLimit) -> None:
        self.level = level
        self.window = window
        self.per_minute = limit.per_minute
        self.burst = limit.capacity * TOKEN
        self.borrow = limit.borrow
        self.tat = 0
        self.returned = 0

    def backlog(self, now: int) -> int:
        """What is used of the burst, in units."""
        return max(0, self.tat - now * self.per_minute)

    def remaining(self, now: int) -> int:
        """Tokens (or requests) that would be admitted now."""
        return max(0, self.burst - self.backlog(now)) // TOKEN

    def give_back(self, units: int, mark: int, now: int) -> None:
        """Take back `units` of a charge after which `tat + returned` was `mark`.

        What has drained since is not given back: the bucket is never fuller than if the charge had been the smaller
        one from its start, so that requests cannot save up one minute's tokens for the next. (A charge of d that ends
        at `tat` leaves a trace of min(d, tat - now) on an otherwise unchanged bucket.)
        """
        units = min(units, mark - self.returned - now * self.per_minute)
        if units > 0:
            self.tat -= units
            self.returned += units

    def change(self, limit: RateLimit, now: int) -> None:
        """Go on under another limit, with what is used already."""
        backlog = self.backlog(now)
        # Reservations under way were marked in the old units: nothing of them is given back.
        self.returned = self.returned + max(0, self.tat)
        self.per_minute = limit.per_minute
        self.burst = limit.capacity * TOKEN
        self.borrow = limit.borrow
        self.tat = now * limit.per_minute + backlog


class Concurrency:
    """Requests at once."""

    __slots__ = ("active", "level", "limit", "window")

    def __init__(self, level: Level, limit: int) -> None:
        self.level = level
        self.window = Window.CONCURRENCY
        self.limit = limit
        self.active = 0


class Budget:
    """What may be spent in one day or month of UTC. `money` says whether it counts money rather than tokens."""

    __slots__ = ("_alarm_at", "_alarmed", "ends", "level", "limit", "money", "period", "starts", "used", "window")

    def __init__(self, level: Level, spec: BudgetLimit, *, money: bool) -> None:
        self.level = level
        self.money = money
        self.period = spec.period
        self.window = BUDGET_WINDOW_OF[spec.period, money]
        self.used = 0
        self.starts = 0
        self.ends = 0
        self._alarmed = 0
        self.change(spec)

    def change(self, spec: BudgetLimit) -> None:
        """Go on under another limit for the same period. Alarms that were raised are not raised again."""
        limit = spec.nano_money if self.money else spec.tokens
        assert limit is not None
        self.limit = limit
        self._alarm_at = sorted({int(limit * ratio) for ratio in spec.alarm_ratios})

    def enter(self, wall: int) -> None:
        """Begin the period that `wall` is in; nothing of it is used."""
        self.starts, self.ends = period_of(self.period, WallNs(wall))
        self.used = 0
        self._alarmed = 0

    def take_alarms(self) -> list[BudgetAlarm]:
        """The thresholds reached since the last call, each once in a period."""
        alarms = []
        while self._alarmed < len(self._alarm_at) and self.used >= self._alarm_at[self._alarmed]:
            threshold = self._alarm_at[self._alarmed]
            alarms.append(
                BudgetAlarm(level=self.level, window=self.window, threshold=threshold, limit=self.limit, used=self.used)
            )
            self._alarmed += 1
        return alarms


def period_of(period: Period, wall: WallNs) -> tuple[WallNs, WallNs]:
    """The start and the end of the day or month that an instant is in, in UTC."""
    day = (_EPOCH + dt.timedelta(seconds=wall // SECOND)).replace(hour=0, minute=0, second=0)
    if period is Period.DAY:
        return _wall(day), _wall(day + dt.timedelta(days=1))
    first = day.replace(day=1)
    return _wall(first), _wall((first + dt.timedelta(days=32)).replace(day=1))


def _wall(instant: dt.datetime) -> WallNs:
    return WallNs(int((instant - _EPOCH).total_seconds()) * SECOND)
