"""What each way of choosing a replica thinks of each candidate: the lowest score is taken, ties by chance.

All are functions of the same facts, so any of them can be put in another's place, and a decision can show its scores.
Loads and lengths are in tokens.
"""

from collections.abc import Callable, Sequence

import msgspec

from pilothouse.policy.affinity.homes import weights
from pilothouse.policy.draw import Draws


class Ask:
    """What is known of a request.

    `request` is the id that chance is drawn from, `tokens` the prompt's length, `key` the hash it is placed by (0 and
    above; `None` if it has no prefix of its own), and `turn` the number of the request, for taking turns.
    """

    __slots__ = ("key", "request", "tokens", "turn")

    def __init__(self, request: str, tokens: int, key: int | None, turn: int) -> None:
        self.request = request
        self.tokens = tokens
        self.key = key
        self.turn = turn


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The knobs of those policies that have any."""

    load_factor: float = 1.25
    """How far above the mean a replica may be loaded before the bounded-load hash walks on: 1.25, as KubeAI and SMG."""
    cache_threshold: float = 0.3
    """Share of the prompt that must be cached for the cache-aware policy to follow it: 0.3, as SGLang's router."""
    balance_abs_tokens: int = 32_768
    """The cache-aware policy balances when loads differ by more than this: SGLang's 64 requests of 512 tokens each."""
    balance_rel: float = 1.5
    """... and by more than this factor: 1.5, as SGLang's router."""
    overlap_weight: float = 1.0
    """What a token of prefill costs beside one in flight, in the overlap cost: 1.0, as Dynamo."""


Scores = list[float] | list[int]
Policy = Callable[[Ask, Sequence[int], Sequence[int], Sequence[int], Draws, Tuning], Scores]
"""(ask, tokens matched, loads, digests of replicas, draws, tuning), all by candidate, to a score for each."""


def new_prefill_times_load(
    ask: Ask, matched: Sequence[int], loads: Sequence[int], _: Sequence[int], draws: Draws, tuning: Tuning
) -> Scores:
    """(new prefill + 1) * (load + 1): no knobs. LMetric, arXiv 2603.15202, with tokens for its batch size."""
    tokens = ask.tokens + 1
    return [(tokens - held) * (load + 1) for held, load in zip(matched, loads, strict=True)]


def overlap_cost(
    ask: Ask, matched: Sequence[int], loads: Sequence[int], _: Sequence[int], draws: Draws, tuning: Tuning
) -> Scores:
    """weight * new prefill + load, as Dynamo's KV router."""
    tokens, weight = ask.tokens, tuning.overlap_weight
    return [weight * (tokens - held) + load for held, load in zip(matched, loads, strict=True)]


def cache_aware(
    ask: Ask, matched: Sequence[int], loads: Sequence[int], _: Sequence[int], draws: Draws, tuning: Tuning
) -> Scores:
    """The longest match if it is long enough and loads are even, else the least loaded, as SGLang's router."""
    highest, lowest = max(loads), min(loads)
    uneven = highest - lowest > tuning.balance_abs_tokens and highest > tuning.balance_rel * lowest
    best = max(matched)
    if uneven or best <= tuning.cache_threshold * ask.tokens:
        return list(loads)
    # Those that match less come after all that match best; among these the load decides.
    return [load if held == best else load + highest + 1 for held, load in zip(matched, loads, strict=True)]


def bounded_load_hash(
    ask: Ask, matched: Sequence[int], loads: Sequence[int], replicas: Sequence[int], draws: Draws, tuning: Tuning
) -> Scores:
    """The prefix's home, or the next in its own order that is not loaded above the bound.

    Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018), with the order of rendezvous
    hashing for the ring, so that what a full replica spills is spread.
    """
    if ask.key is None:
        return list(loads)
    bound = tuning.load_factor * sum(loads) / len(loads)
    over = 1 << 64
    return [
        (0 if load <= bound else over) - weight for weight, load in zip(weights(ask.key, replicas), loads, strict=True)
    ]


def least_loaded(
    ask: Ask, matched: Sequence[int], loads: Sequence[int], _: Sequence[int], draws: Draws, tuning: Tuning
) -> Scores:
    """The load."""
    return list(loads)


def power_of_two(
    ask: Ask, matched: Sequence[int], loads: Sequence[int], _: Sequence[int], draws: Draws, tuning: Tuning
) -> Scores:
    """The less loaded of two drawn by chance (Mitzenmacher, 2001)."""
    count = len(loads)
    first = draws.below(count, ask.request, "first")
    second = (first + 1 + draws.below(count - 1, ask.request, "second")) % count if count > 1 else first
    least = min(loads[first], loads[second])
    return [
        0 if index in (first, second) and load == least else 1 + (index not in (first, second))
        for index, load in enumerate(loads)
    ]


def round_robin(
    ask: Ask, matched: Sequence[int], loads: Sequence[int], _: Sequence[int], draws: Draws, tuning: Tuning
) -> Scores:
    """How many turns a candidate still has to wait for."""
    count = len(loads)
    return [(index - ask.turn) % count for index in range(count)]


POLICIES: dict[str, Policy] = {
    "new-prefill-x-load": new_prefill_times_load,
    "overlap-cost": overlap_cost,
    "cache-aware": cache_aware,
    "bounded-load-hash": bounded_load_hash,
    "least-loaded": least_loaded,
    "power-of-two": power_of_two,
    "round-robin": round_robin,
}
"""By the name in the fleet file."""

DEFAULT_POLICY = "new-prefill-x-load"
USES_PREFIX = frozenset({"new-prefill-x-load", "overlap-cost", "cache-aware", "bounded-load-hash"})
"""Those for which a prompt has to be hashed."""
USES_INDEX = USES_PREFIX - {"bounded-load-hash"}
"""Those for which the index has to be asked and kept."""
