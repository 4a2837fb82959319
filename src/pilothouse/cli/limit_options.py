"""Options that set limits, the same for tenants and keys."""

import dataclasses

import msgspec

from pilothouse.model.tenants import BudgetLimit, Limits, Period, RateLimit

_NANO = 1_000_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Limits as options of a command; what is `None` was not given.

    Args:
        requests_per_minute: Requests a minute.
        input_tokens_per_minute: Input tokens a minute.
        output_tokens_per_minute: Output tokens a minute.
        tokens_per_minute: Input and output tokens a minute.
        concurrent_requests: Requests at once.
        tokens_per_day: Tokens a day of UTC.
        tokens_per_month: Tokens a month of UTC.
        money_per_day: Money a day of UTC, in the currency of the price list.
        money_per_month: Money a month of UTC.
        borrow: The limits per minute given here may be passed while nobody waits. Kept, not acted on yet.
    """

    requests_per_minute: int | None = None
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    money_per_day: float | None = None
    money_per_month: float | None = None
    borrow: bool = False


def limits_of(options: LimitOptions | None, now: Limits) -> Limits:
    """The limits `now` with those that were given in their place."""
    if options is None:
        return now
    rates = {
        name: RateLimit(per_minute=value, borrow=options.borrow)
        for name, value in (
            ("requests", options.requests_per_minute),
            ("input_tokens", options.input_tokens_per_minute),
            ("output_tokens", options.output_tokens_per_minute),
            ("total_tokens", options.tokens_per_minute),
        )
        if value is not None
    }
    changed = msgspec.structs.replace(now, **rates)
    if options.concurrent_requests is not None:
        changed = msgspec.structs.replace(changed, concurrent_requests=options.concurrent_requests)
    budgets = {budget.period: budget for budget in now.budgets}
    for period, tokens, money in (
        (Period.DAY, options.tokens_per_day, options.money_per_day),
        (Period.MONTH, options.tokens_per_month, options.money_per_month),
    ):
        budget = budgets.get(period, BudgetLimit(period=period))
        if tokens is not None:
            budget = msgspec.structs.replace(budget, tokens=tokens)
        if money is not None:
            budget = msgspec.structs.replace(budget, nano_money=round(money * _NANO))
        if budget.tokens is not None or budget.nano_money is not None:
            budgets[period] = budget
    return msgspec.structs.replace(changed, budgets=tuple(budgets.values()))
