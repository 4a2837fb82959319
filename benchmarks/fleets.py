"""Whole fleets for the bars: the program in a home directory of its own, and what can be asked of it."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = (sys.executable, "-P", "-m", "pilothouse.cli.main")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Home:
    """Empty HOME and XDG directories. Caches may be the operator's own, where a bar says that they are warm."""

    def __init__(self, directory: Path, *, warm_weights: bool) -> None:
        self.directory = directory
        self.env = {
            name: value for name, value in os.environ.items() if name in ("PATH", "LANG") or name.startswith("PIP_")
        }
        real_home = Path(os.environ.get("HOME", "/"))
        cache = Path(os.environ.get("XDG_CACHE_HOME") or real_home / ".cache")
        self.env |= {
            "HOME": str(directory),
            "XDG_STATE_HOME": str(directory / "state"),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "XDG_CACHE_HOME": str(cache if warm_weights else directory / "cache"),
            "XDG_RUNTIME_DIR": str(directory / "run"),
            "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(cache / "pip")),
            "PILOTHOUSE_GATEWAY_LISTEN": f"127.0.0.1:{free_port()}",
            "PILOTHOUSE_CONTROLLER_LISTEN": f"127.0.0.1:{free_port()}",
        }
        (directory / "run").mkdir(mode=0o700)

    @property
    def url(self) -> str:
        return f"http://{self.env['PILOTHOUSE_GATEWAY_LISTEN']}"

    @property
    def admin_url(self) -> str:
        return f"http://{self.env['PILOTHOUSE_CONTROLLER_LISTEN']}"

    def run(self, *arguments: str) -> str:
        """Run a command of the program to its end; what it printed."""
        done = subprocess.run(
            [*PROGRAM, *arguments], env=self.env, cwd=self.directory, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"pilothouse {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        """`pilothouse status --json`."""
        status: dict[str, Any] = json.loads(self.run("status", "--json"))
        return status

    def key(self) -> str:
        """The operator's key."""
        text = (self.directory / "config" / "pilothouse" / "credentials").read_text()
        found = re.search(r"ph_[A-Za-z0-9_-]+", text)
        assert found is not None
        return found[0]

    def processes(self) -> list[int]:
        """Pids of living processes that were started in this home."""
        marker = f"HOME={self.directory}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if marker in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def gauge(self, name: str) -> float:
        """The sum of a metric over its labels."""
        text = httpx2.get(f"{self.admin_url}/metrics").text
        values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, values))


@contextlib.contextmanager
def home(*, warm_weights: bool = True) -> Iterator[Home]:
    """A home; whatever still runs in it at the end is stopped."""
    directory = Path(tempfile.mkdtemp(prefix="pilothouse-bar-"))
    one = Home(directory, warm_weights=warm_weights)
    try:
        yield one
    finally:
        subprocess.run([*PROGRAM, "down"], env=one.env, cwd=directory, capture_output=True, check=False)
        shutil.rmtree(directory, ignore_errors=True)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 30.0, every_s: float = 0.01) -> float:
    """Seconds until `condition` holds. Raises TimeoutError naming `what`."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(every_s)
    return time.monotonic() - began
