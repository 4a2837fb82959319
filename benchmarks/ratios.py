"""CPU beside Envoy's, in one run.

Both proxies stand before the same two upstreams and are loaded in turn, so that a change of the machine's speed hits
both; what counts is the median of the ratios of each turn. CPU is user and system time of the process, from /proc.
"""

import statistics
from collections.abc import Mapping

from benchmarks import load
from benchmarks.bars.report import Bar, tell
from benchmarks.peers import before_upstreams

ROUNDS = 7
SECONDS = 3
CONNECTIONS = 32
ENVOY, OURS = "envoy", "pilothouse"

Costs = dict[str, list[float]]
"""CPU microseconds by proxy, one for each turn."""


def measure(loads: Mapping[str, str], *, ours: str = OURS) -> dict[str, Costs]:
    """The cost of a request under each of these loads (names to bodies). `ours` is a name in `peers.PEERS`."""
    costs: dict[str, Costs] = {name: {ENVOY: [], ours: []} for name in loads}
    with before_upstreams([ENVOY, ours]) as (running, directory):
        for number in range(ROUNDS + 1):
            for name, text in loads.items():
                for proxy, figures in costs[name].items():
                    one, seconds = running[proxy], SECONDS if number else 1
                    cost = load.run(one.port, one.pids, directory, text, connections=CONNECTIONS, seconds=seconds)
                    if number:  # the first turn warms up
                        figures.append(cost.cpu_us)
            if number:
                ratios = {name: each[ours][-1] / each[ENVOY][-1] for name, each in costs.items()}
                tell(f"turn {number}: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    return costs


def per_event(one: Costs, many: Costs, events: int) -> Costs:
    """An event's cost: that of a stream of `events` events less that of a stream of one, over the difference."""
    return {
        proxy: [(a - b) / (events - 1) for a, b in zip(many[proxy], one[proxy], strict=True)] for proxy in (ENVOY, OURS)
    }


def bar(name: str, limit: float, costs: Costs, *, ours: str = OURS) -> Bar:
    """Our cost over Envoy's against a limit."""
    ratios = [one / other for one, other in zip(costs[ours], costs[ENVOY], strict=True)]
    ratio = statistics.median(ratios)
    mine, theirs = statistics.median(costs[ours]), statistics.median(costs[ENVOY])
    return Bar(
        name=name,
        limit=f"<= {limit:g}",
        measured=f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}; {mine:.2f} / {theirs:.2f} us)",
        passed=ratio <= limit,
        details={"ratios": [round(each, 3) for each in ratios]},
    )
