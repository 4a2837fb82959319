"""Programs from the package index, each in an environment of its own, kept from run to run."""

import os
import subprocess
import venv
from pathlib import Path

from benchmarks.bars.report import tell


def environment(package: str) -> Path:
    """The `bin` of an environment that has this package, installed if it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pilothouse-bench" / package
    done = cache / "installed"
    if not done.exists():
        tell(f"installing {package}")
        venv.create(cache, with_pip=True, clear=True)
        subprocess.run([cache / "bin" / "python", "-m", "pip", "install", "-q", package], check=True)
        done.touch()
    return cache / "bin"
