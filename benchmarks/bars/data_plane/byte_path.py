"""CPU per request and per event beside Envoy, in one run, with every feature on.

All stand before the same two upstreams and are loaded in turn, so that a change of the machine's speed hits both; the
verdict is on the median of the ratios of each turn. An event's cost is that of a 100-event stream less a 1-event
stream, over 99 (a burst); spaced events are measured in `streams`.
"""

import statistics
from pathlib import Path

from benchmarks import load
from benchmarks.bars.report import Bar, main, tell
from benchmarks.peers import Running, before_upstreams

ROUNDS = 5
SECONDS = 3
CONNECTIONS = 32
JSON_LIMIT, LARGE_LIMIT, EVENT_LIMIT = 0.75, 1.25, 1.0
LOADS = {
    "json": load.body(),
    "json 8 KB": load.body(8 * 1024),
    "json 200 KB": load.body(200 * 1024),
    "stream of 1": load.body(events=1),
    "stream of 100": load.body(events=100),
}
PROXIES = ("envoy", "pilothouse")


def measure() -> list[Bar]:
    """The ratios."""
    costs: dict[str, dict[str, list[float]]] = {name: {proxy: [] for proxy in PROXIES} for name in LOADS}
    with before_upstreams(PROXIES) as (running, directory):
        for number in range(ROUNDS + 1):
            for name, text in LOADS.items():
                for proxy in PROXIES:
                    cost = _cost(running[proxy], directory, text, SECONDS if number else 1)
                    if number:  # the first round warms up
                        costs[name][proxy].append(cost)
            if number:
                ratios = {name: each["pilothouse"][-1] / each["envoy"][-1] for name, each in costs.items()}
                tell(f"round {number}: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    return _bars(costs)


def _cost(proxy: Running, directory: Path, text: str, seconds: int) -> float:
    return load.run(proxy.port, proxy.pids, directory, text, connections=CONNECTIONS, seconds=seconds).cpu_us


def _bars(costs: dict[str, dict[str, list[float]]]) -> list[Bar]:
    events = {
        proxy: [
            (many - one) / 99
            for one, many in zip(costs["stream of 1"][proxy], costs["stream of 100"][proxy], strict=True)
        ]
        for proxy in PROXIES
    }
    rows = [
        ("CPU per JSON request / Envoy's", JSON_LIMIT, costs["json"]),
        ("CPU per JSON request of 8 KB / Envoy's", JSON_LIMIT, costs["json 8 KB"]),
        ("CPU per JSON request of 200 KB / Envoy's", LARGE_LIMIT, costs["json 200 KB"]),
        ("CPU per SSE event in bursts / Envoy's", EVENT_LIMIT, events),
    ]
    bars = []
    for what, limit, figures in rows:
        ratios = [ours / theirs for ours, theirs in zip(figures["pilothouse"], figures["envoy"], strict=True)]
        ratio = statistics.median(ratios)
        ours, theirs = (statistics.median(figures[proxy]) for proxy in ("pilothouse", "envoy"))
        bars.append(
            Bar(
                name=what,
                limit=f"<= {limit:g}",
                measured=f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}; {ours:.2f} / {theirs:.2f} us)",
                passed=ratio <= limit,
                details={"ratios": [round(each, 3) for each in ratios]},
            )
        )
    return bars


if __name__ == "__main__":
    main("data_plane", measure())
