"""The table of known advisories and the posture of May 2026, as the tests have them."""

import re
import subprocess
import sys

from benchmarks.bars.report import Bar, main
from benchmarks.fleets import ROOT

_TESTS = "tests/unit/store/advisories/test_known_advisories.py"


def measure() -> list[Bar]:
    """Every row inside and outside its bounds, with and without its feature; the posture from data."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", "--no-header", _TESTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    passed, failed = (int((re.findall(rf"(\d+) {word}", done.stdout) or [0])[-1]) for word in ("passed", "failed"))
    return [
        Bar(
            name="known advisories and the posture of May 2026",
            limit="all as the table says",
            measured=f"{passed} cases as it says, {failed} not",
            passed=done.returncode == 0 and passed > 0,
        )
    ]


if __name__ == "__main__":
    main("engines", measure())
