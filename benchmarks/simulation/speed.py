"""How fast it is: the conversation trace. `python -m benchmarks.simulation.speed [REPLICAS COPIES]`."""

import hashlib
import resource
import sys
import time

import msgspec

from benchmarks.simulation.data import CONVERSATION
from pilothouse.policy.draw import Draws
from pilothouse.simulator.engine import Engine
from pilothouse.simulator.fleet import Fleet, Outcome, Replica
from pilothouse.simulator.links import load_links
from pilothouse.simulator.metrics import Figures, Slo, figures
from pilothouse.simulator.profile import load
from pilothouse.simulator.routers import LeastLoaded
from pilothouse.simulator.workloads.loaders import MOONCAKE_UNIT_TOKENS, mooncake
from pilothouse.simulator.workloads.shaping import multiplied


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    turns: int
    cpu_s: float
    peak_bytes: int
    figures: Figures
    digest: str
    """Of every column of every turn."""

    @property
    def turns_per_s(self) -> float:
        return self.turns / self.cpu_s


def run(replicas: int = 8, copies: int = 1, *, stepped: bool = False) -> Measured:
    """70B on TP8 replicas, the default router; the trace is read before the clock starts."""
    turns = mooncake(CONVERSATION)
    profile = load("llama-3.1-70b-h100").sharded(8, load_links("h100-vllm-graph")[8])
    limits = profile.limits()
    times = profile.times(limits)
    began = time.process_time()
    fleet = Fleet(
        [
            Replica(str(index), Engine(times, limits, unit_tokens=MOONCAKE_UNIT_TOKENS, stepped=stepped))
            for index in range(replicas)
        ],
        LeastLoaded(replicas, Draws(0)),
    )
    outcome = fleet.run(multiplied(turns, copies) if copies > 1 else turns)
    cpu_s = time.process_time() - began
    return Measured(
        turns=len(outcome.records),
        cpu_s=cpu_s,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        figures=figures(outcome, Slo(ttft_s=5.0, tpot_s=0.1)),
        digest=_digest(outcome),
    )


def _digest(outcome: Outcome) -> str:
    digest = hashlib.sha256()
    for name in sorted(outcome.records.columns):
        digest.update(outcome.records.columns[name].tobytes())
    return digest.hexdigest()


def main() -> None:
    """Print one run."""
    made = run(*map(int, sys.argv[1:3]))
    print(
        f"{made.turns} requests, {made.cpu_s:.2f} s CPU: {made.turns_per_s:,.0f}/s; "
        f"peak {made.peak_bytes / 1e6:.0f} MB; "
        f"TTFT p50 {made.figures.ttft_s.p50:.3f} s, p99 {made.figures.ttft_s.p99:.3f} s; {made.digest[:16]}"
    )


if __name__ == "__main__":
    main()
