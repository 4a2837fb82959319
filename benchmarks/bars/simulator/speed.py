"""Requests a second, fast-forward against steps, a large fleet, and the same bytes from the same seed."""

import json
import os
import subprocess
import sys
import time

from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import ROOT
from benchmarks.simulation import speed
from pilothouse.simulator.metrics import Figures, Spread

RATE = 10_000
RUNS = 5
LARGE_S, LARGE_BYTES = 300.0, 2e9
DIFFERENCE = 0.01


def measure() -> list[Bar]:
    """Speed is the median of five runs; the large fleet is a process of its own, for its memory."""
    runs = [speed.run() for _ in range(RUNS)]
    rate = sorted(run.turns_per_s for run in runs)[RUNS // 2]
    tell("stepped mode")
    stepped = speed.run(stepped=True)
    apart = _apart(runs[0].figures, stepped.figures)
    digests = {run.digest for run in runs} | {_elsewhere()}
    tell("400 replicas, 100 times the trace")
    began = time.monotonic()
    printed = subprocess.run(
        [sys.executable, "-c", _LARGE], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    took = time.monotonic() - began
    large = json.loads(printed)
    return [
        Bar(
            name="conversation trace, 8 replicas",
            limit=f">= {RATE:,} requests/s a core",
            measured=f"{rate:,.0f}/s",
            passed=rate >= RATE,
        ),
        Bar(
            name="fast-forward against steps, every percentile",
            limit="within 1%",
            measured=f"{apart:.4%}",
            passed=apart <= DIFFERENCE,
        ),
        Bar(
            name="conversation trace x 100 on 400 replicas",
            limit="< 5 min on 2 cores, < 2 GB",
            measured=f"{large['turns']:,} requests in {took:.0f} s on one core, {large['peak_bytes'] / 1e9:.2f} GB",
            passed=took < LARGE_S and large["peak_bytes"] < LARGE_BYTES,
        ),
        Bar(
            name="same seed, same bytes (six runs, one with another hash seed)",
            limit="one digest",
            measured=f"{len(digests)}",
            passed=len(digests) == 1,
        ),
    ]


_LARGE = (
    "import json; from benchmarks.simulation import speed; m = speed.run(400, 100); "
    "print(json.dumps({'turns': m.turns, 'peak_bytes': m.peak_bytes}))"
)


def _elsewhere() -> str:
    code = "from benchmarks.simulation import speed; print(speed.run().digest)"
    argv = [sys.executable, "-c", code]
    env = {**os.environ, "PYTHONHASHSEED": "123"}
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout.strip()


def _apart(one: Figures, other: Figures) -> float:
    """The largest relative difference of any mean or percentile."""
    largest = 0.0
    for name in ("ttft_s", "tpot_s", "latency_s", "queue_s", "token_gap_s"):
        spread, against = getattr(one, name), getattr(other, name)
        for field in Spread.__struct_fields__:
            a, b = getattr(spread, field), getattr(against, field)
            largest = max(largest, abs(a - b) / max(b, 1e-9))
    return largest


if __name__ == "__main__":
    main("simulator", measure())
