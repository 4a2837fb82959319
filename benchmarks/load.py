"""Loads and what they cost: wrk on one side, /proc on the other."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.bars.report import tell
from benchmarks.gateway_worker import KEY, MODEL
from pilothouse.model.requests import Route

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SCRIPT = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.headers["authorization"] = "Bearer {key}"
wrk.body = '{body}'
"""
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """One load on one proxy. CPU is user and system time of its processes for each request; latencies in seconds."""

    requests_per_s: float
    cpu_us: float
    latency_s: dict[str, float]
    resident_mib: float


def body(prompt_bytes: int = 32, *, events: int | None = None, interval_ms: int = 0) -> str:
    """A chat request with a prompt of about this size; for a stream of `events` events, `interval_ms` apart."""
    text = ("Hello, how are you doing today? " * (prompt_bytes // 32 + 1))[:prompt_bytes]
    stream = "" if events is None else f',"stream":true,"n_events":{events},"interval_ms":{interval_ms}'
    return f'{{"model":"{MODEL}","messages":[{{"role":"user","content":"{text}"}}],"max_tokens":100{stream}}}'


def run(port: int, pids: Sequence[int], directory: Path, text: str, *, connections: int, seconds: int) -> Cost:
    """Load `port` with requests of this body, and see what the processes behind it spend.

    Raises RuntimeError if a request fails.
    """
    script = directory / "load.lua"
    script.write_text(_SCRIPT.format(key=KEY, body=text))
    url = f"http://127.0.0.1:{port}{Route.CHAT_COMPLETIONS}"
    argv = [_wrk(), "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), url]
    before, began = cpu_seconds(pids), time.monotonic()
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    used, took = cpu_seconds(pids) - before, time.monotonic() - began
    if "Non-2xx" in printed or "Socket errors" in printed:
        raise RuntimeError(f"the load had errors: {printed}")
    found = re.search(r"(\d+) requests in", printed)
    assert found is not None
    requests = max(1, int(found[1]))
    return Cost(
        requests_per_s=requests / took,
        cpu_us=used / requests * 1e6,
        latency_s={
            percent: float(value) * _UNITS[unit]
            for percent, value, unit in re.findall(r"^ +(\d+)%\s+([\d.]+)(us|ms|s|m)\s*$", printed, re.MULTILINE)
        },
        resident_mib=sum(map(resident_bytes, pids)) / 2**20,
    )


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time of these processes and of their threads so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


def resident_bytes(pid: int) -> int:
    """Memory that the process has in the machine."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def listens(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def stopping(*processes: subprocess.Popen[bytes]) -> Iterator[None]:
    """End these processes at the end of the block."""
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wrk() -> str:
    """The load generator's program, installed from Debian's packages where that is possible."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        tell("installing wrk")
        for command in (["update", "-qq"], ["install", "-y", "-qq", "wrk"]):
            subprocess.run(["apt-get", *command], check=True, stdout=subprocess.DEVNULL)
    program = shutil.which("wrk")
    if program is None:
        raise FileNotFoundError("wrk is needed: apt-get install wrk")
    return program
