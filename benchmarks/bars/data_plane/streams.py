"""A thousand slow streams on one worker beside Envoy, and ten thousand idle connections."""

import resource
import statistics

from benchmarks import slow_streams
from benchmarks.bars.report import Bar, main, tell
from benchmarks.peers import before_upstreams
from benchmarks.slow_streams import Streams

STREAMS = 1000
INTERVAL_MS = 60  # 16,700 events/s over all: what two cores can carry with the clients and the engines beside
SECONDS = 6.0
ROUNDS = 3
MEMORY_LIMIT, GAP_LIMIT_MS, EVENT_LIMIT = 60 * 1024, 1.5, 1.0
IDLE, IDLE_LIMIT = 10_000, 300 * 2**20


def measure() -> list[Bar]:
    """Streams in turns, then the idle connections."""
    _allow_descriptors(2 * IDLE)
    found: dict[str, list[Streams]] = {"envoy": [], "pilothouse": []}
    with before_upstreams(tuple(found)) as (running, _):
        for number in range(1, ROUNDS + 1):
            for name, rounds in found.items():
                one = slow_streams.run(running[name], streams=STREAMS, interval_ms=INTERVAL_MS, seconds=SECONDS)
                rounds.append(one)
                tell(
                    f"round {number}, {name}: {one.failed} failed, {one.events_per_s:.0f} events/s, gap p99 "
                    f"{one.gap_p99_s * 1e3:.2f} ms, {one.cpu_us_per_event:.1f} us/event, "
                    f"{one.bytes_per_stream / 1024:.1f} KB/stream"
                )
    with before_upstreams(["pilothouse"]) as (running, _):
        resident = slow_streams.idle_connections(running["pilothouse"], IDLE)
    ours, theirs = found["pilothouse"], found["envoy"]
    failed = sum(one.failed for one in ours)
    memory = max(one.bytes_per_stream for one in ours)
    gap_ms = statistics.median((a.gap_p99_s - b.gap_p99_s) * 1e3 for a, b in zip(ours, theirs, strict=True))
    cost = statistics.median(a.cpu_us_per_event / b.cpu_us_per_event for a, b in zip(ours, theirs, strict=True))
    return [
        Bar(
            name=f"{STREAMS} slow streams on one worker: errors",
            limit="0",
            measured=f"{failed} of {STREAMS * ROUNDS}, {ours[-1].events_per_s:.0f} events/s",
            passed=failed == 0,
        ),
        Bar(
            name="memory per stream",
            limit="< 60 KB",
            measured=f"{memory / 1024:.1f} KB",
            passed=memory < MEMORY_LIMIT,
        ),
        Bar(
            name="inter-token p99 above Envoy's",
            limit=f"<= {GAP_LIMIT_MS} ms",
            measured=f"{gap_ms:.2f} ms ({', '.join(f'{one.gap_p99_s * 1e3:.1f}' for one in ours)} beside "
            f"{', '.join(f'{one.gap_p99_s * 1e3:.1f}' for one in theirs)})",
            passed=gap_ms <= GAP_LIMIT_MS,
        ),
        Bar(
            name="CPU per spaced SSE event / Envoy's",
            limit=f"<= {EVENT_LIMIT:g}",
            measured=f"{cost:.2f} ({ours[-1].cpu_us_per_event:.1f} / {theirs[-1].cpu_us_per_event:.1f} us)",
            passed=cost <= EVENT_LIMIT,
        ),
        Bar(
            name=f"{IDLE} idle keep-alive connections",
            limit="< 300 MB",
            measured=f"{resident / 2**20:.0f} MB",
            passed=resident < IDLE_LIMIT,
        ),
    ]


def _allow_descriptors(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, wanted)), hard))


if __name__ == "__main__":
    main("data_plane", measure())
