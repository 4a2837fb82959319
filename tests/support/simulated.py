"""Small engines and workloads for tests of the simulator."""

from collections.abc import Sequence

from pilothouse.simulator.calibration import run_alone
from pilothouse.simulator.engine import Engine
from pilothouse.simulator.fleet import AnyEngine
from pilothouse.simulator.profile import load
from pilothouse.simulator.step_times import EngineLimits
from pilothouse.simulator.turn import Turn

PROFILE = load("llama-3.1-8b-h100")


def small_limits(kv_blocks: int = 200) -> EngineLimits:
    return EngineLimits(kv_blocks=kv_blocks, max_batch_tokens=256, max_sequences=16)


def engine(limits: EngineLimits | None = None, *, stepped: bool = False) -> Engine:
    limits = limits or small_limits()
    return Engine(PROFILE.times(limits), limits, stepped=stepped)


def turns(shapes: Sequence[tuple[int, int, int]]) -> list[Turn]:
    """(gap in microseconds, prompt, output) each."""
    at = 0
    made = []
    for number, (gap_us, prompt, output) in enumerate(shapes):
        at += gap_us * 1_000
        shared = tuple(range(prompt // 16 // 2))
        own = tuple((number + 1 << 20) + index for index in range(len(shared), prompt // 16))
        made.append(Turn(str(number), at, prompt, output, tenant=str(number % 3), units=shared + own))
    return made


def served(engine: AnyEngine, shapes: Sequence[tuple[int, int, int]]) -> list[Turn]:
    made = turns(shapes)
    run_alone(engine, made)
    return made
