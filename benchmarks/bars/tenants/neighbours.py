"""What one tenant's flood does to another's time to first token, in virtual time on the engine of `fairness.py`."""

import random

from benchmarks.bars.report import Bar, main, tell
from benchmarks.bars.tenants.fairness import CAPACITY
from benchmarks.client_trace import Served, TraceRequest
from benchmarks.virtual_gateway import A10G, ArrivalOrder, FairOrder, Queue, replay
from pilothouse.model.tenants import Level, RateLimit
from pilothouse.model.units import SECOND, DurationNs
from pilothouse.policy.fairness.queue import FairQueue, QueueSettings
from pilothouse.policy.limits.decision import Window
from pilothouse.policy.limits.plan import LimitPlan
from pilothouse.policy.limits.windows import Rate

LIMIT = 0.20
DURATION_S = 900.0
TENANTS = 10
RATE_PER_TENANT = 0.1  # requests a second of about 390 tokens: ten tenants ask for half of what the engine can do
SHARE = RateLimit(per_minute=4680, burst=4680)  # a tenth of the engine's 780 tokens a second
FLOOD = 50


def measure() -> list[Bar]:
    """Nine tenants at their share and the tenth at fifty times of its own, against ten at their share."""
    calm = _p99(_replay(1, fair=True, limited=False))
    unlimited = _p99(_replay(FLOOD, fair=True, limited=False))
    unfair = _p99(_replay(FLOOD, fair=False, limited=False))
    limited = _p99(_replay(FLOOD, fair=True, limited=True))
    tell(f"p99 of the nine others: calm {calm:.3f} s, flooded without a limit {unlimited:.3f} s, with {limited:.3f} s")
    moved = limited / calm - 1
    return [
        Bar(
            name="p99 time to first token beside a tenant at 50 times its share, limited to it",
            limit="moved by less than 20 %",
            measured=f"{calm:.3f} s to {limited:.3f} s ({moved:+.0%})",
            passed=moved < LIMIT,
            details={
                "without_a_limit_s": round(unlimited, 3),
                "first_come_first_served_s": round(unfair, 1),
            },
        )
    ]


def _requests(times: int) -> list[TraceRequest]:
    requests = []
    for tenant in range(TENANTS):
        draw = random.Random(tenant)
        at = 0.0
        rate = RATE_PER_TENANT * (times if tenant == 0 else 1)
        while (at := at + draw.expovariate(rate)) < DURATION_S:
            requests.append(
                TraceRequest(
                    at_s=at,
                    client=str(tenant),
                    input_tokens=draw.randint(20, 250),
                    output_tokens=1 + int(draw.expovariate(1 / 256)),
                )
            )
    return sorted(requests, key=lambda each: each.at_s)


def _replay(times: int, *, fair: bool, limited: bool) -> list[Served]:
    queue: Queue = ArrivalOrder(CAPACITY)
    if fair:
        settings = QueueSettings(max_waiting=10**6, max_waiting_tokens=10**9, max_wait_ns=DurationNs(10**6 * SECOND))
        queue = FairOrder(FairQueue(settings, CAPACITY))
    plan = LimitPlan([Rate(Level.TENANT, Window.TOTAL_TOKENS, SHARE)])
    return replay(
        _requests(times),
        queue,
        A10G,
        expected_output=lambda each: each.output_tokens,
        until_s=DURATION_S,
        plan_of=lambda each: plan if limited and each.client == "0" else None,
    )


def _p99(served: list[Served]) -> float:
    waits = sorted(each.first_token_s - each.request.at_s for each in served if each.request.client != "0")
    return waits[int(0.99 * len(waits))]


if __name__ == "__main__":
    main("tenants", measure())
