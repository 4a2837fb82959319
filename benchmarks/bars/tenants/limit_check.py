"""What limits cost: the time of a check at three levels, and the memory of 10,000 tenants and 100,000 keys."""

import gc
import subprocess
import sys
import timeit
from pathlib import Path

from benchmarks.bars.report import Bar, main
from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.tenants import Key, Limits, Organisation, RateLimit, Tenant, TenantDirectory
from pilothouse.policy.limits.limiter import Limiter
from pilothouse.policy.limits.plan import LimitPlan
from pilothouse.policy.limits.reservation import Demand, Reservation

TIME_LIMIT_US = 2.0
MEMORY_LIMIT_MB = 150
TENANTS, KEYS = 10_000, 100_000
USED_KEYS = 10_000
_ROUNDS, _CALLS = 40, 2000


def measure() -> list[Bar]:
    """Requests and tokens a minute and requests at once, at each of three levels."""
    reserve_us, whole_us = _times()
    memory_mb = float(
        subprocess.run(
            [sys.executable, "-c", "from benchmarks.bars.tenants.limit_check import load; load()"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    return [
        Bar(
            name="check of 9 limits at 3 levels",
            limit=f"<= {TIME_LIMIT_US:g} us",
            measured=f"{reserve_us:.2f} us; with the settlement {whole_us:.2f} us",
            passed=reserve_us <= TIME_LIMIT_US,
        ),
        Bar(
            name="memory of 10,000 tenants and 100,000 keys, 10,000 of them in use",
            limit=f"<= {MEMORY_LIMIT_MB} MB",
            measured=f"{memory_mb:.0f} MB",
            passed=memory_mb <= MEMORY_LIMIT_MB,
        ),
    ]


def load() -> None:
    """Print how many megabytes the process grows by."""
    before = _resident_mb()
    limiter = Limiter()
    limiter.use(directory(), 10**15)
    for number in range(0, KEYS, KEYS // USED_KEYS):
        plan = limiter.plan(KeyId(f"key_{number:024x}"), 10**15)
        assert plan is not None
        assert isinstance(plan.reserve(Demand(input_tokens=10, output_tokens=10), 10**15, 0), Reservation)
    gc.collect()
    print(_resident_mb() - before)


def directory() -> TenantDirectory:
    """Tenants and keys, each with limits of its own."""
    limits = Limits(
        requests=RateLimit(per_minute=600),
        total_tokens=RateLimit(per_minute=10**7, burst=10**12),
        concurrent_requests=10**6,
    )
    return TenantDirectory(
        version=1,
        organisations=tuple(
            Organisation(id=OrganisationId(f"org-{number}"), name=f"Organisation {number}", limits=limits)
            for number in range(TENANTS // 10)
        ),
        tenants=tuple(
            Tenant(
                id=TenantId(f"tenant-{number}"),
                organisation=OrganisationId(f"org-{number // 10}"),
                name=f"Tenant {number}",
                limits=limits,
            )
            for number in range(TENANTS)
        ),
        keys=tuple(
            Key(
                id=KeyId(f"key_{number:024x}"),
                tenant=TenantId(f"tenant-{number // 10}"),
                digest=number.to_bytes(32, "big"),
                limits=limits,
            )
            for number in range(KEYS)
        ),
    )


def _times() -> tuple[float, float]:
    limits = Limits(
        requests=RateLimit(per_minute=10**6, burst=10**9),
        total_tokens=RateLimit(per_minute=10**7, burst=10**12),
        concurrent_requests=10**9,
    )
    limiter = Limiter()
    org, tenant, key = OrganisationId("o"), TenantId("t"), KeyId("k")
    limiter.use(
        TenantDirectory(
            version=1,
            organisations=(Organisation(id=org, name="o", limits=limits),),
            tenants=(Tenant(id=tenant, organisation=org, name="t", limits=limits),),
            keys=(Key(id=key, tenant=tenant, digest=b"k", limits=limits),),
        ),
        10**15,
    )
    found = limiter.plan(key, 10**15)
    assert found is not None
    plan: LimitPlan = found
    demand = Demand(input_tokens=100, output_tokens=200)
    now = 10**15

    def reserve() -> None:
        nonlocal now
        now += 1_000_000
        plan.reserve(demand, now, now)

    def whole() -> None:
        nonlocal now
        now += 1_000_000
        reservation = plan.reserve(demand, now, now)
        assert isinstance(reservation, Reservation)
        reservation.settle(now, 100, 150)

    return (_best_us(reserve), _best_us(whole))


def _best_us(call: object) -> float:
    return min(timeit.repeat(call, number=_CALLS, repeat=_ROUNDS)) / _CALLS * 1e6  # type: ignore[arg-type]


def _resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


if __name__ == "__main__":
    main("tenants", measure())
