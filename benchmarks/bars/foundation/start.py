"""From a clone to the first streamed token, and from a command to a ready fleet."""

import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import httpx2

from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import ROOT, Home, home, wait_for

TO_FIRST_TOKEN_S = 60.0
TO_READY_S = 5.0
READY_RUNS = 3


def measure() -> list[Bar]:
    """Both figures; each run ends with nothing left running."""
    with tempfile.TemporaryDirectory(prefix="pilothouse-clone-") as scratch, home(warm_weights=False) as fresh:
        clone = Path(scratch) / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        tell("make up in a fresh clone, with an empty home and a warm package cache")
        first, left = _to_first_token(["make", "up"], fresh, clone)
    times = []
    with home() as installed:
        for _ in range(READY_RUNS + 1):  # the first fetches the weights, if nobody has
            began = time.monotonic()
            installed.run("up", "--detach")
            times.append(time.monotonic() - began)
            installed.run("down")
        left += len(installed.processes())
    ready = sorted(times[1:])[READY_RUNS // 2]
    return [
        Bar(
            name="clone to first streamed token",
            limit=f"< {TO_FIRST_TOKEN_S:g} s",
            measured=f"{first:.1f} s",
            passed=first < TO_FIRST_TOKEN_S,
        ),
        Bar(
            name="starting the fleet",
            limit=f"< {TO_READY_S:g} s",
            measured=f"{ready:.2f} s (median of {READY_RUNS})",
            passed=ready < TO_READY_S,
            details={"runs_s": [round(each, 2) for each in times]},
        ),
        Bar(name="left running after the end", limit="0", measured=str(left), passed=left == 0),
    ]


def _to_first_token(argv: list[str], where: Home, directory: Path) -> tuple[float, int]:
    """Seconds to the first token of a stream, and the processes left after Ctrl-C."""
    began = time.monotonic()
    with subprocess.Popen(
        argv, env=where.env, cwd=directory, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        printed = ""
        while not re.search(r"^print\(", printed, re.MULTILINE):
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"make up ended before it was ready: {printed}")
            printed += line
        key = re.findall(r"ph_[A-Za-z0-9_-]+", printed)[0]
        body = {"model": "smollm2", "messages": [{"role": "user", "content": "Say hello."}], "stream": True}
        headers = {"authorization": f"Bearer {key}"}
        with httpx2.stream("POST", f"{where.url}/v1/chat/completions", json=body, headers=headers) as stream:
            for text in stream.iter_text():
                if '"content":"' in text:
                    break
        took = time.monotonic() - began
        for pid in where.processes():
            if b"pilothouse\0up" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGINT)
        process.wait(timeout=60)
    wait_for(lambda: not where.processes(), "the end of all processes", timeout_s=20)
    return took, len(where.processes())


if __name__ == "__main__":
    main("foundation", measure())
