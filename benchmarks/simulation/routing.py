"""The routing table: 16 prefill workers, 70B, conversation trace. `python -m benchmarks.simulation.routing`.

The published figure (Mooncake, FAST'25, figure 5): mean time to first token 19.65 s at random, 5.27 s balanced by load,
3.58 s by the local caches, on 16 nodes of eight A800. Prefill alone: every answer has one token.
"""

import importlib
from collections.abc import Callable, Collection

import msgspec

from benchmarks.simulation.data import CONVERSATION
from pilothouse.policy.draw import Draws
from pilothouse.simulator.engine import Engine
from pilothouse.simulator.fleet import Fleet, Replica
from pilothouse.simulator.links import load_links
from pilothouse.simulator.profile import Profile, load
from pilothouse.simulator.routers import ByPrefix, LeastLoaded, Router
from pilothouse.simulator.step_times import StepTimes
from pilothouse.simulator.turn import Turn
from pilothouse.simulator.workloads.loaders import MOONCAKE_UNIT_TOKENS, mooncake
from pilothouse.simulator.workloads.shaping import faster

WORKERS = 16
UNITS_PER_WORKER = 5_000
SLOWNESS = 989 / 312
"""An A800 against an H100 in 16-bit arithmetic, which is what binds prefill."""
SPEED = 1.55
"""By how much the trace is compressed: the paper does not give its load, so it is chosen once, for random routing."""


class _Baseline:
    """What the compared routers share: the work that was sent to each worker and is not done, in nanoseconds."""

    hears_first_tokens = False

    def __init__(self, engines: list[Engine], times: StepTimes, draws: Draws) -> None:
        self.engines = engines
        self.times = times
        self.draws = draws
        self.free_at = [0] * len(engines)
        self.work: dict[Turn, int] = {}

    def prefill_ns(self, turn: Turn, cached: int) -> int:
        left = max(turn.prompt - cached, 1)
        pairs = left * (turn.prompt - left + 0.5 * left)
        steps = -(-left // 8_192)
        return round(SLOWNESS * (steps * self.times.mixed(left // steps, 1, 0, pairs / steps)))

    def started(self, turn: Turn, index: int, now: int) -> None:
        cached = self.engines[index].pool.hit_tokens(turn.units)
        self.free_at[index] = max(self.free_at[index], now) + self.prefill_ns(turn, cached)

    def first_token(self, turn: Turn, index: int, now: int) -> None:
        pass

    def ended(self, turn: Turn, index: int, now: int) -> None:
        pass


class AtRandom(_Baseline):
    def choose(self, turn: Turn, now: int, excluded: Collection[int]) -> int | None:
        return self.draws.below(len(self.engines), turn.key, "random")


class ByLoad(_Baseline):
    """The worker that will be free first."""

    def choose(self, turn: Turn, now: int, excluded: Collection[int]) -> int | None:
        waits = [max(at - now, 0) for at in self.free_at]
        least = min(waits)
        tied = [index for index, wait in enumerate(waits) if wait == least]
        return tied[self.draws.below(len(tied), turn.key, "tie")]


class ByLocalCache(_Baseline):
    """The worker with the earliest first token, given what its own cache holds."""

    def choose(self, turn: Turn, now: int, excluded: Collection[int]) -> int | None:
        costs = [
            max(at - now, 0) + self.prefill_ns(turn, engine.pool.hit_tokens(turn.units))
            for at, engine in zip(self.free_at, self.engines, strict=True)
        ]
        least = min(costs)
        tied = [index for index, cost in enumerate(costs) if cost == least]
        return tied[self.draws.below(len(tied), turn.key, "tie")]


def profile() -> Profile:
    """70B on eight GPUs; slowed to an A800 by the engines' slowness."""
    return load("llama-3.1-70b-h100").sharded(8, load_links("h100-vllm-graph")[8])


def mean_ttft(make: Callable[[list[Engine], StepTimes, Draws], Router], speed: float = SPEED) -> tuple[float, float]:
    """Mean time to first token in seconds, and the ratio of prompt tokens that a cache held."""
    made = profile()
    limits = msgspec.structs.replace(made.limits(UNITS_PER_WORKER * MOONCAKE_UNIT_TOKENS // 16), max_batch_tokens=8_192)
    times = made.times(limits)
    engines = [Engine(times, limits, unit_tokens=MOONCAKE_UNIT_TOKENS) for _ in range(WORKERS)]
    for engine in engines:
        engine.slowness = SLOWNESS
    turns = mooncake(CONVERSATION)
    for turn in turns:
        turn.output = 1
    fleet = Fleet([Replica(str(n), engine) for n, engine in enumerate(engines)], make(engines, times, Draws(0)))
    columns = fleet.run(faster(turns, speed)).records.columns
    ttft = (sum(columns["first_ns"]) - sum(columns["arrival_ns"])) / 1e9 / len(turns)
    return ttft, sum(columns["cached_tokens"]) / sum(columns["prompt"])


def default_router(engines: list[Engine], times: StepTimes, draws: Draws) -> Router:
    """What production routes by: prefix and load where this version can, else load alone."""
    try:
        production = importlib.import_module("pilothouse.policy.routing.replica_router").ReplicaRouter
    except ModuleNotFoundError:
        return LeastLoaded(len(engines), draws)
    router = production(draws, index_blocks=UNITS_PER_WORKER, tokens_in=lambda units: units * MOONCAKE_UNIT_TOKENS)
    return ByPrefix(router, len(engines))


ROUTERS: dict[str, Callable[[list[Engine], StepTimes, Draws], Router]] = {
    "random": AtRandom,
    "load balance": ByLoad,
    "local cache-aware": ByLocalCache,
    "default": default_router,
}


def main() -> None:
    """Print the table."""
    for name, make in ROUTERS.items():
        ttft, hit = mean_ttft(make)
        print(f"{name:24} mean TTFT {ttft:8.3f} s, cached {hit:.1%}")


if __name__ == "__main__":
    main()
