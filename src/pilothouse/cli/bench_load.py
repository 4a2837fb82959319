"""The load of a bench run: which requests, how many at a time, for how long."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator

import msgspec

from pilothouse.cli.bench_client import BenchClient, Outcome
from pilothouse.cli.target import Target

_WORDS = (
    "river", "stone", "light", "engine", "harbour", "window", "letter", "market", "winter", "garden", "signal",
    "copper", "bridge", "valley", "paper", "silver", "morning", "captain", "forest", "number", "kitchen", "mirror",
    "station", "thunder", "blanket", "compass", "lantern", "orchard", "pocket", "railway", "shadow", "teacher",
    "village", "whisper", "anchor", "basket", "candle", "desert", "feather", "glacier", "hammer", "island", "jacket",
    "kettle", "ladder", "meadow", "needle", "ocean", "pillow", "quarter", "ribbon", "saddle", "temple", "umbrella",
    "velvet", "wagon", "yellow", "zephyr", "acorn", "bottle", "cabin", "dragon",
)  # fmt: skip
_TOKENS_PER_WORD = 1.3  # of such words; SmolLM2's tokenizer makes 1.2 of them


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. Exactly one of `requests` and `duration_s` bounds it."""

    model: str
    requests: int | None
    duration_s: float | None
    concurrency: int
    prompt_tokens: int
    max_tokens: int
    stream: bool
    seed: int
    request_timeout_s: float = 600.0


def bodies(load: Load) -> Iterator[bytes]:
    """Request bodies without end, the same ones for the same seed.

    No two prompts begin alike, so that a prefix cache helps none of them.
    """
    number = 0
    while True:
        draw = random.Random(f"{load.seed}/{number}")
        words = " ".join(draw.choices(_WORDS, k=max(1, round(load.prompt_tokens / _TOKENS_PER_WORD))))
        body: dict[str, object] = {
            "model": load.model,
            "messages": [{"role": "user", "content": f"{draw.getrandbits(32):08x} {words}"}],
            "max_tokens": load.max_tokens,
            "seed": load.seed,
        }
        if load.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        yield msgspec.json.encode(body)
        number += 1


async def run_load(target: Target, load: Load, on_outcome: Callable[[Outcome], None]) -> list[Outcome]:
    """Send the load from `concurrency` clients at once, each waiting for its answer before it asks again."""
    supply = bodies(load)
    outcomes: list[Outcome] = []
    ends_at = None if load.duration_s is None else time.perf_counter() + load.duration_s
    left = load.requests

    def next_body() -> bytes | None:
        nonlocal left
        if ends_at is not None and time.perf_counter() >= ends_at:
            return None
        if left is not None:
            if left == 0:
                return None
            left -= 1
        return next(supply)

    async def client() -> None:
        connection = BenchClient(target, timeout_s=load.request_timeout_s)
        try:
            while (body := next_body()) is not None:
                outcome = await connection.send(body)
                outcomes.append(outcome)
                on_outcome(outcome)
                if outcome.error == "connect_failed":
                    await asyncio.sleep(_RECONNECT_PAUSE_S)
        finally:
            connection.close()

    async with asyncio.TaskGroup() as clients:
        for _ in range(load.concurrency):
            clients.create_task(client())
    return outcomes


_RECONNECT_PAUSE_S = 0.05  # without it, a server that is down would be asked as fast as the loop turns
