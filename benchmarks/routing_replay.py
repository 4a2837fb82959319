"""Replays the public conversation trace through the router, against caches that evict as engines do.

`python -m benchmarks.routing_replay [TRACE]` prints a table of every selectable policy. The trace is Mooncake's
conversation_trace.jsonl (Apache-2.0, kvcache-ai/Mooncake, FAST25-release/traces), plain or gzipped; it is looked for
in `$PILOTHOUSE_TRACES` when no path is given.
"""

import gzip
import os
import random
import sys
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pilothouse.model.units import MILLISECOND, DurationNs, MonotonicNs
from pilothouse.policy.affinity.scores import POLICIES
from pilothouse.policy.draw import Draws
from pilothouse.policy.routing.load import RECENT, RecentWork
from pilothouse.policy.routing.replica_router import ReplicaRouter

BLOCK_TOKENS = 512
_TICK_NS = 3_000 * MILLISECOND  # the trace's clock moves every 3 s: arrivals are spread evenly inside each
NAMES = ("conversation_trace.jsonl.gz", "conversation_trace.jsonl")


class Row(msgspec.Struct, frozen=True):
    """A line of the trace."""

    timestamp: int
    input_length: int
    output_length: int
    hash_ids: list[int]


class Arrival(msgspec.Struct, frozen=True):
    """A request of the replay."""

    at: MonotonicNs
    tokens: int
    blocks: list[int]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy reached: share of tokens hit, and the largest share of uncached work over the mean."""

    policy: str
    hit: float
    bound: float
    imbalance: float

    @property
    def of_bound(self) -> float:
        """The share of the best that an infinite cache could do."""
        return self.hit / self.bound


def find_trace(path: str | None = None) -> Path:
    """The trace's file."""
    if path is not None:
        return Path(path)
    directory = Path(os.environ.get("PILOTHOUSE_TRACES", "traces"))
    for name in NAMES:
        if (directory / name).exists():
            return directory / name
    raise FileNotFoundError(f"no {' or '.join(NAMES)} in {directory}: set PILOTHOUSE_TRACES to its directory")


def read(path: Path, seed: int = 1) -> list[Arrival]:
    """The arrivals in order, spread inside the ticks of the trace's clock."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    chance = random.Random(seed)
    arrivals = []
    for row in msgspec.json.Decoder(Row).decode_lines(data):
        at = MonotonicNs(row.timestamp * MILLISECOND + int(chance.random() * _TICK_NS))
        arrivals.append(Arrival(at, row.input_length, row.hash_ids))
    return sorted(arrivals, key=lambda arrival: arrival.at)


def bound(arrivals: Sequence[Arrival]) -> float:
    """Share of tokens that one infinite cache would hit."""
    seen: set[int] = set()
    hit = 0
    for arrival in arrivals:
        hit += min(BLOCK_TOKENS * _leading(arrival.blocks, seen), arrival.tokens)
        seen.update(arrival.blocks)
    return hit / sum(arrival.tokens for arrival in arrivals)


def replay(
    arrivals: Sequence[Arrival],
    policy: str,
    replicas: int,
    blocks: int,
    best: float,
    *,
    seed: int = 0,
    recent: DurationNs = RECENT,
) -> Outcome:
    """Send every request through the router, and see what the caches of `blocks` blocks make of it.

    The load is the work given lately: the replay has no engine that could say when a request ends.
    """
    router = ReplicaRouter(Draws(seed), policy=policy, index_blocks=blocks, tokens_in=BLOCK_TOKENS.__mul__)
    router.set_replicas([f"replica-{index}" for index in range(replicas)])
    caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(replicas)]
    load = RecentWork(replicas, recent)
    work = [0] * replicas
    hits = 0
    for number, arrival in enumerate(arrivals):
        decision = router.choose(str(number), arrival.tokens, load.loads(arrival.at), arrival.blocks)
        index = decision.index
        assert index is not None
        router.sent(decision)
        cache = caches[index]
        hit = min(BLOCK_TOKENS * _leading(arrival.blocks, cache), arrival.tokens)
        _touch(cache, arrival.blocks, blocks)
        hits += hit
        work[index] += arrival.tokens - hit
        load.given(index, arrival.tokens - hit)
    return Outcome(
        policy=policy,
        hit=hits / sum(arrival.tokens for arrival in arrivals),
        bound=best,
        imbalance=max(work) / (sum(work) / replicas),
    )


def _leading(blocks: Sequence[int], held: "set[int] | OrderedDict[int, None]") -> int:
    for length, block in enumerate(blocks):
        if block not in held:
            return length
    return len(blocks)


def _touch(cache: "OrderedDict[int, None]", blocks: Sequence[int], capacity: int) -> None:
    """As engines do: the last block first, so that the first is the most recent; then the oldest go."""
    for block in reversed(blocks):
        cache[block] = None
        cache.move_to_end(block)
    while len(cache) > capacity:
        cache.popitem(last=False)


def table(arrivals: Sequence[Arrival]) -> dict[tuple[int, int], list[Outcome]]:
    """Every policy by (replicas, blocks each)."""
    best = bound(arrivals)
    return {
        (replicas, blocks): [replay(arrivals, policy, replicas, blocks, best) for policy in POLICIES]
        for replicas in (8, 16)
        for blocks in (5_000, 1_000)
    }


def lines(outcomes: dict[tuple[int, int], list[Outcome]]) -> list[str]:
    """The table as Markdown: hit rate of the bound, and max/mean uncached work in brackets."""
    sizes = list(outcomes)
    head = ["policy", *(f"{replicas} x {blocks:,}" for replicas, blocks in sizes)]
    rows = [
        [policy, *(f"{one.of_bound:.1%} ({one.imbalance:.2f})" for size in sizes for one in [outcomes[size][place]])]
        for place, policy in enumerate(POLICIES)
    ]
    return ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]


if __name__ == "__main__":
    arrivals = read(find_trace(sys.argv[1] if len(sys.argv) > 1 else None))
    print(f"{len(arrivals):,} requests; one infinite cache hits {bound(arrivals):.2%} of the tokens")
    print("\n".join(lines(table(arrivals))))
