"""Measure all bars of an issue: `python -m benchmarks.bars foundation [SCRIPT ...]`."""

import importlib
import pkgutil
import sys
import traceback

from benchmarks.bars.report import Bar, keep, show, tell


def scripts(issue: str) -> list[str]:
    """The names of an issue's scripts."""
    package = importlib.import_module(f"benchmarks.bars.{issue}")
    return [module.name for module in pkgutil.iter_modules(package.__path__)]


def measure(issue: str, script: str) -> list[Bar]:
    """The bars of one script; a script that breaks is a bar that failed."""
    tell(f"== {script}")
    try:
        bars: list[Bar] = importlib.import_module(f"benchmarks.bars.{issue}.{script}").measure()
    except Exception as error:
        traceback.print_exc()
        return [Bar(name=script, limit="runs", measured=f"{type(error).__name__}: {error}"[:200], passed=False)]
    return bars


def run(arguments: list[str]) -> int:
    """Exit code 0 when every bar passed, 1 when not, 2 for a wrong name."""
    issue, *wanted = arguments or ["foundation"]
    issue = issue.replace("-", "_")
    try:
        known = scripts(issue)
    except ModuleNotFoundError:
        tell(f"there are no bars of an issue {issue}")
        return 2
    if unknown := set(wanted) - set(known):
        tell(f"{issue} has no script {', '.join(sorted(unknown))}; it has {', '.join(known)}")
        return 2
    bars = [bar for script in wanted or known for bar in measure(issue, script)]
    show(bars)
    keep(issue, bars)
    return 0 if all(bar.passed for bar in bars) else 1


sys.exit(run(sys.argv[1:]))
