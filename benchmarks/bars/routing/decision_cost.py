"""What one whole decision costs with the approximate index, and what the index weighs after a million prompts."""

import gc
import random
import time
import tracemalloc

from benchmarks.bars.report import Bar, main
from pilothouse.policy.affinity.blocks import BYTES_PER_TOKEN, chain, scope_of
from pilothouse.policy.affinity.homes import digest_of
from pilothouse.policy.draw import Draws
from pilothouse.policy.routing.replica_router import ReplicaRouter

CASES = ((8, 2_000, 25.0), (64, 2_000, 60.0), (64, 100_000, 300.0))
"""Replicas, tokens of the prompt, and the limit in microseconds."""

UNIQUE_PROMPTS = 1_000_000
GROWTH = 0.02
"""Of memory between the first and the last tenth of the measured prompts, once the index is full."""


def measure() -> list[Bar]:
    """Time decisions, then fill the index."""
    return [*(_cost(replicas, tokens, limit) for replicas, tokens, limit in CASES), _memory()]


def _cost(replicas: int, tokens: int, limit: float) -> Bar:
    """Half of the prompts continue one that was sent before, half are new: hash, look up, score, remember.

    The index is full, so that every new block also pushes one out. The loads are a list that the caller has.
    The verdict is on CPU time, since wall time counts what others do on a shared machine.
    """
    chance = random.Random(7)
    router = _router(replicas)
    scope = scope_of("tenant")
    size = tokens * BYTES_PER_TOKEN
    loads = [chance.randrange(100_000) for _ in range(replicas)]
    _fill(router, chance, loads)
    count = 2_000 if tokens < 10_000 else 200
    fresh = [chance.randbytes(size) for _ in range(count // 2)]
    asked = [prompt for one in fresh for prompt in ((one,), (one[: size // 2] + one[: size // 2],))]
    session = digest_of("session")
    taken = []
    gc.collect()
    gc.disable()
    clock = time.perf_counter_ns
    cpu_before = time.thread_time_ns()
    for number, prompt in enumerate(asked):
        request = f"req_{number:024x}"
        began = clock()
        decision = router.choose(request, tokens, loads, chain(prompt, scope), session=session + number)
        router.sent(decision, session + number)
        taken.append(clock() - began)
    mean = (time.thread_time_ns() - cpu_before) / len(asked) / 1000
    gc.enable()
    middle, high = (sorted(taken)[int(len(taken) * part)] / 1000 for part in (0.5, 0.9))
    return Bar(
        name=f"decision, {replicas} replicas, {tokens:,}-token prompt",
        limit=f"< {limit:g} us",
        measured=f"mean {mean:.1f} us of CPU; wall: median {middle:.1f}, p90 {high:.1f}",
        passed=mean < limit,
    )


def _router(replicas: int) -> ReplicaRouter:
    router = ReplicaRouter(Draws(1))
    router.set_replicas([f"model-{index}" for index in range(replicas)])
    return router


def _fill(router: ReplicaRouter, chance: random.Random, loads: list[int]) -> None:
    capacity = len(router.replicas) * 4_096
    number = 0
    while len(router) < capacity:
        blocks = [chance.getrandbits(61) for _ in range(512)]
        router.sent(router.choose(f"fill-{number}", 128_000, [0] * len(loads), blocks))
        number += 1
        if number > 4 * capacity // 512:
            break


def _memory() -> Bar:
    """A million prompts of 8 blocks that are never seen again, in sessions that are all new."""
    chance = random.Random(11)
    router = _router(8)
    loads = [0] * 8
    sizes = []
    tracemalloc.start()
    for number in range(UNIQUE_PROMPTS):
        blocks = [chance.getrandbits(61) for _ in range(8)]
        loads[number % 8] = number % 97
        router.sent(router.choose(str(number), 2_048, loads, blocks, session=number), number)
        if number % 50_000 == 49_999:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    full, last = sizes[1], sizes[-1]
    growth = last / full - 1
    return Bar(
        name=f"memory over {UNIQUE_PROMPTS:,} unique prompts, 8 replicas",
        limit=f"flat (within {GROWTH:.0%} of that after 100,000)",
        measured=f"{full / 1e6:.1f} MB after 100,000, {last / 1e6:.1f} MB at the end, {len(router):,} blocks",
        passed=growth <= GROWTH,
    )


if __name__ == "__main__":
    main("routing", measure())
