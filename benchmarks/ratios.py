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


def measure(loads: Mapping[str, str]) -> dict[str, Costs]:
    """The cost of a request under each of these loads (names to bodies)."""
    costs: dict[str, Costs] = {name: {ENVOY: [], OURS: []} for name in loads}
    with before_upstreams([ENVOY, OURS]) as (running, directory):
        for number in range(ROUNDS + 1):
            for name, text in loads.items():
                for proxy, figures in costs[name].items():
                    one, seconds = running[proxy], SECONDS if number else 1
                    cost = load.run(one.port, one.pids, directory, text, connections=CONNECTIONS, seconds=seconds)
                    if number:  # the first turn warms up
                        figures.append(cost.cpu_us)
            if number:
                ratios = {name: each[OURS][-1] / each[ENVOY][-1] for name, each in costs.items()}
                tell(f"turn {number}: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    return costs


def per_event(one: Costs, many: Costs, events: int) -> Costs:
    """An event's cost: that of a stream of `events` events less that of a stream of one, over the difference."""
    return {
        proxy: [(a - b) / (events - 1) for a, b in zip(many[proxy], one[proxy], strict=True)] for proxy in (ENVOY, OURS)
    }


def bar(name: str, limit: float, costs: Costs) -> Bar:
    """Our cost over Envoy's against a limit."""
    ratios = [ours / theirs for ours, theirs in zip(costs[OURS], costs[ENVOY], strict=True)]
    ratio = statistics.median(ratios)
    ours, theirs = statistics.median(costs[OURS]), statistics.median(costs[ENVOY])
    return Bar(
        name=name,
        limit=f"<= {limit:g}",
        measured=f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}; {ours:.2f} / {theirs:.2f} us)",
        passed=ratio <= limit,
        details={"ratios": [round(each, 3) for each in ratios]},
    )
