"""The routing table: ordering, ratios, and the default policy against the best of them."""

from benchmarks.bars.report import Bar, main
from benchmarks.simulation import routing

RANDOM_OVER_LOCAL, BALANCE_OVER_LOCAL, NEAR = 5.5, 1.5, 0.2


def measure() -> list[Bar]:
    """Mean time to first token of each."""
    found = {name: routing.mean_ttft(make)[0] for name, make in routing.ROUTERS.items()}
    random, balance, local = found["random"], found["load balance"], found["local cache-aware"]
    default = found["default"]
    return [
        Bar(
            name="random > load balance > local cache-aware",
            limit="in this order",
            measured=f"{random:.2f} > {balance:.2f} > {local:.2f} s",
            passed=random > balance > local,
        ),
        _ratio("random / local cache-aware", random / local, RANDOM_OVER_LOCAL),
        _ratio("load balance / local cache-aware", balance / local, BALANCE_OVER_LOCAL),
        Bar(
            name="the default policy",
            limit="no worse than the best of them",
            measured=f"{default:.2f} s against {local:.2f} s",
            passed=default <= local,
        ),
    ]


def _ratio(name: str, ratio: float, published: float) -> Bar:
    return Bar(
        name=name,
        limit=f"{published:g} within {NEAR:.0%}",
        measured=f"{ratio:.2f}",
        passed=abs(ratio / published - 1) <= NEAR,
    )


if __name__ == "__main__":
    main("simulator", measure())
