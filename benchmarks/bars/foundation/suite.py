"""`make test`: how long it takes, and what it says of real clients and of bad input."""

import re
import subprocess
import sys
import time

from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import ROOT

LIMIT_S = 360.0


def measure() -> list[Bar]:
    """The conformance suite by itself, then everything."""
    tell("pytest tests/conformance")
    conformance = _run([sys.executable, "-m", "pytest", "-q", "tests/conformance"])
    tell("make test")
    began = time.monotonic()
    everything = _run(["make", "test"])
    took = time.monotonic() - began
    return [
        Bar(
            name="conformance: openai and anthropic clients, bad input",
            limit="all pass",
            measured=_counts(conformance.stdout),
            passed=conformance.returncode == 0,
        ),
        Bar(
            name="make test",
            limit=f"passes, < {LIMIT_S:g} s",
            measured=f"{_counts(everything.stdout)} in {took:.0f} s",
            passed=everything.returncode == 0 and took < LIMIT_S,
        ),
    ]


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tell(done.stdout[-4000:] + done.stderr[-4000:])
    return done


def _counts(printed: str) -> str:
    found = re.findall(r"\d+ (?:passed|failed|error\w*|skipped)", printed)
    return ", ".join(found) or "nothing ran"


if __name__ == "__main__":
    main("foundation", measure())
