"""What a limit says: which one refused, how long to wait, and what is left."""

import enum

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.model.tenants import Level


class Window(enum.StrEnum):
    """What is limited."""

    REQUESTS = "requests per minute"
    INPUT_TOKENS = "input tokens per minute"
    OUTPUT_TOKENS = "output tokens per minute"
    TOTAL_TOKENS = "tokens per minute"
    CONCURRENCY = "concurrent requests"
    TOKENS_PER_DAY = "tokens per day"
    TOKENS_PER_MONTH = "tokens per month"
    MONEY_PER_DAY = "money per day"
    MONEY_PER_MONTH = "money per month"


RATE_WINDOWS = (Window.REQUESTS, Window.INPUT_TOKENS, Window.OUTPUT_TOKENS, Window.TOTAL_TOKENS)
"""The windows per minute, in the order of a request's costs."""

MONEY_WINDOWS = frozenset((Window.MONEY_PER_DAY, Window.MONEY_PER_MONTH))
BUDGET_WINDOWS = frozenset((Window.TOKENS_PER_DAY, Window.TOKENS_PER_MONTH)) | MONEY_WINDOWS

_LEVEL_NAMES = {Level.ORGANISATION: "organisation", Level.TENANT: "tenant", Level.KEY: "key"}


class LimitRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A limit does not allow the request now.

    `asked` and `remaining` are in what the window counts (for money: billionths of the currency). `retry_after_s` is
    the whole number of seconds, at least 1, after which the same request fits if nothing else comes; `None` when it
    never will, because it asks for more than the limit holds when it is full. `unavailable`: the limit is shared, and
    whoever keeps it does not answer.
    """

    level: Level
    window: Window
    limit: int
    asked: int
    remaining: int
    retry_after_s: int | None
    unavailable: bool = False

    @property
    def code(self) -> str:
        """The code in the error table: a spent budget is not a rate, and clients must not retry it."""
        if self.unavailable:
            return "limits_unavailable"
        return "insufficient_quota" if self.window in BUDGET_WINDOWS else "rate_limit_exceeded"

    @property
    def refusal(self) -> Refusal:
        """The refusal as the client hears it."""
        level = _LEVEL_NAMES[self.level]
        if self.unavailable:
            return Refusal(code=self.code, message=f"The {level}'s limit ({self.window}) cannot be checked now.")
        if self.window in BUDGET_WINDOWS:
            return Refusal(code=self.code, message=f"The {level} has spent its budget ({self.window}).")
        message = f"The {level}'s limit of {self.limit} {self.window} is reached"
        if self.window is Window.CONCURRENCY:
            return Refusal(code=self.code, message=f"{message}.")
        asked = f": {self.asked} asked, {self.remaining} left."
        if self.retry_after_s is None:
            return Refusal(code=self.code, message=f"{message}{asked} The request is larger than the limit.")
        return Refusal(code=self.code, message=f"{message}{asked} Try again in {self.retry_after_s} s.")


class WindowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One window for the x-ratelimit headers: what it holds, what is left, and when it is full again."""

    limit: int
    remaining: int
    reset_ms: int


class BudgetAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """A budget has passed one of its thresholds: `used` of `limit`, in the window's own units."""

    level: Level
    window: Window
    threshold: int
    limit: int
    used: int


def reset_text(milliseconds: int) -> str:
    """A duration as the x-ratelimit-reset headers have it: `120ms`, `6s`, `1m30s`."""
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    seconds = -(-milliseconds // 1000)
    minutes, seconds = divmod(seconds, 60)
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
