"""CPU per JSON request and per streamed event beside Envoy, in one run."""

from benchmarks import load, ratios
from benchmarks.bars.report import Bar, main

JSON_LIMIT = 0.9
EVENT_LIMIT = 1.1
LOADS = {"json": load.body(), "stream of 1": load.body(events=1), "stream of 100": load.body(events=100)}


def measure() -> list[Bar]:
    """Both ratios."""
    costs = ratios.measure(LOADS)
    events = ratios.per_event(costs["stream of 1"], costs["stream of 100"], 100)
    return [
        ratios.bar("CPU per JSON request / Envoy's", JSON_LIMIT, costs["json"]),
        ratios.bar("CPU per SSE event / Envoy's", EVENT_LIMIT, events),
    ]


if __name__ == "__main__":
    main("foundation", measure())
