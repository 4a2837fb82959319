"""CPU per request and per event beside Envoy, with every feature on. Spaced events are measured in `streams`."""

from benchmarks import load, ratios
from benchmarks.bars.report import Bar, main

JSON_LIMIT, LARGE_LIMIT, EVENT_LIMIT = 0.75, 1.25, 1.0
LOADS = {
    "json": load.body(),
    "json 8 KB": load.body(8 * 1024),
    "json 200 KB": load.body(200 * 1024),
    "stream of 1": load.body(events=1),
    "stream of 100": load.body(events=100),
}


def measure() -> list[Bar]:
    """The ratios."""
    costs = ratios.measure(LOADS)
    events = ratios.per_event(costs["stream of 1"], costs["stream of 100"], 100)
    return [
        ratios.bar("CPU per JSON request / Envoy's", JSON_LIMIT, costs["json"]),
        ratios.bar("CPU per JSON request of 8 KB / Envoy's", JSON_LIMIT, costs["json 8 KB"]),
        ratios.bar("CPU per JSON request of 200 KB / Envoy's", LARGE_LIMIT, costs["json 200 KB"]),
        ratios.bar("CPU per SSE event in bursts / Envoy's", EVENT_LIMIT, events),
    ]


if __name__ == "__main__":
    main("data_plane", measure())
