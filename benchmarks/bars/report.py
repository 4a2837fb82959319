"""A bar, its verdict, and the file that keeps what was measured."""

import datetime as dt
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path

import msgspec

RESULTS = Path(__file__).resolve().parents[1] / "results.json"


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar. `limit` and `measured` are as shown; `details` is kept beside them in the results."""

    name: str
    limit: str
    measured: str
    passed: bool
    details: dict[str, object] = {}


def tell(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)


def show(bars: list[Bar]) -> None:
    """The table: name, limit, measured, verdict."""
    rows = [("bar", "limit", "measured", "verdict")]
    rows += [(bar.name, bar.limit, bar.measured, "passed" if bar.passed else "FAILED") for bar in bars]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def keep(issue: str, bars: list[Bar]) -> None:
    """Merge into results.json, by issue and bar."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept = results.setdefault(issue, {})
    when = dt.datetime.now(dt.UTC).date().isoformat()
    for bar in bars:
        kept[bar.name] = {
            "limit": bar.limit,
            "measured": bar.measured,
            "passed": bar.passed,
            "date": when,
            "machine": machine(),
            "pilothouse": importlib.metadata.version("pilothouse"),
            **bar.details,
        }
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


def machine() -> str:
    """What the figures were measured on."""
    cores = len(os.sched_getaffinity(0))
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{cores} cores, {model}, Python {platform.python_version()}"


def main(issue: str, bars: list[Bar]) -> None:
    """The end of a script that runs alone."""
    show(bars)
    keep(issue, bars)
    raise SystemExit(0 if all(bar.passed for bar in bars) else 1)
