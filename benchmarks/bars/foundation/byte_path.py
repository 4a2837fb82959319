"""CPU per JSON request and per streamed event beside Envoy, in one run.

Both proxies stand before the same two upstreams and are loaded in turn, so that a change of the machine's speed hits
both; the verdict is on the median of the ratios of each turn. The gateway is a real worker with all that it has
(authentication, routing, accounting, metrics); Envoy only forwards. An event's cost is that of a 100-event stream less
a 1-event stream, over 99. CPU is user and system time of the process, from /proc.
"""

import contextlib
import hmac
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks import envoy
from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import free_port, wait_for
from pilothouse.cli.worker_processes import MALLOC
from pilothouse.model.boot import WorkerBoot
from pilothouse.model.fleet import (
    DeploymentView,
    Endpoint,
    FleetSnapshot,
    KeyView,
    ModelView,
    ReplicaState,
    ReplicaView,
)
from pilothouse.model.ids import DeploymentName, FleetName, KeyId, ModelName, ReplicaId, TenantId
from pilothouse.model.requests import Route

JSON_LIMIT = 0.9
EVENT_LIMIT = 1.1
ROUNDS = 7
SECONDS = 4
CONNECTIONS = 32
KEY = "ph_bench"

_TICK = os.sysconf("SC_CLK_TCK")
_SCRIPT = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.headers["authorization"] = "Bearer {key}"
wrk.body = '{{"model":"m","messages":[{{"role":"user","content":"Hello, how are you doing today?"}}]{more}}}'
"""
LOADS = {
    "json": ',"max_tokens":100',
    "stream of 1": ',"stream":true,"n_events":1',
    "stream of 100": ',"stream":true,"n_events":100',
}


def measure() -> list[Bar]:
    """Both ratios."""
    wrk = _wrk()
    with tempfile.TemporaryDirectory(prefix="pilothouse-byte-path-") as scratch, contextlib.ExitStack() as stack:
        directory = Path(scratch)
        upstreams = [free_port(), free_port()]
        for port in upstreams:
            stack.enter_context(_running([sys.executable, "-m", "benchmarks.upstream", str(port)], port))
        proxies = {"envoy": free_port(), "pilothouse": free_port()}
        processes = {
            "envoy": stack.enter_context(_stopping(envoy.start(proxies["envoy"], upstreams, directory))),
            "pilothouse": stack.enter_context(_stopping(_worker(proxies["pilothouse"], upstreams, directory))),
        }
        for port in proxies.values():
            wait_for(lambda port=port: _listens(port), f"port {port}")  # type: ignore[misc]
        costs: dict[str, dict[str, list[float]]] = {load: {"envoy": [], "pilothouse": []} for load in LOADS}
        for number in range(ROUNDS + 1):
            for load, more in LOADS.items():
                script = directory / "load.lua"
                script.write_text(_SCRIPT.format(key=KEY, more=more))
                for name, port in proxies.items():
                    cost = _cost(wrk, script, port, processes[name].pid, SECONDS if number else 1)
                    if number:  # the first round warms up
                        costs[load][name].append(cost)
            if number:
                tell(f"round {number}: " + _line({load: _ratio(costs[load], -1) for load in LOADS}))
    return _bars(costs)


def _bars(costs: dict[str, dict[str, list[float]]]) -> list[Bar]:
    events = {
        name: [
            (many - one) / 99
            for one, many in zip(costs["stream of 1"][name], costs["stream of 100"][name], strict=True)
        ]
        for name in ("envoy", "pilothouse")
    }
    bars = []
    for what, limit, figures in (
        ("CPU per JSON request / Envoy's", JSON_LIMIT, costs["json"]),
        ("CPU per SSE event / Envoy's", EVENT_LIMIT, events),
    ):
        ratios = [ours / theirs for ours, theirs in zip(figures["pilothouse"], figures["envoy"], strict=True)]
        ratio = statistics.median(ratios)
        ours, theirs = (statistics.median(figures[name]) for name in ("pilothouse", "envoy"))
        bars.append(
            Bar(
                name=what,
                limit=f"<= {limit:g}",
                measured=f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}; {ours:.2f} / {theirs:.2f} us)",
                passed=ratio <= limit,
                details={"ratios": [round(each, 3) for each in ratios], "envoy": envoy.PACKAGE},
            )
        )
    return bars


def _ratio(figures: dict[str, list[float]], index: int) -> float:
    return figures["pilothouse"][index] / figures["envoy"][index]


def _line(ratios: dict[str, float]) -> str:
    return ", ".join(f"{load} {ratio:.2f}" for load, ratio in ratios.items())


def _wrk() -> str:
    """The load generator's program, installed from Debian's packages where that is possible."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        tell("installing wrk")
        subprocess.run(["apt-get", "install", "-y", "-qq", "wrk"], check=True, stdout=subprocess.DEVNULL)
    program = shutil.which("wrk")
    if program is None:
        raise FileNotFoundError("wrk is needed: apt-get install wrk")
    return program


def _cost(wrk: str, script: Path, port: int, pid: int, seconds: int) -> float:
    """CPU microseconds of process `pid` per request of a load on `port`."""
    argv = [
        wrk,
        "-t1",
        f"-c{CONNECTIONS}",
        f"-d{seconds}s",
        "-s",
        str(script),
        f"http://127.0.0.1:{port}{Route.CHAT_COMPLETIONS}",
    ]
    before = _cpu_seconds(pid)
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    used = _cpu_seconds(pid) - before
    if "Non-2xx" in printed or "Socket errors" in printed:
        raise RuntimeError(f"the load had errors: {printed}")
    requests = re.search(r"(\d+) requests in", printed)
    assert requests is not None
    return used / int(requests[1]) * 1e6


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _worker(port: int, upstreams: list[int], directory: Path) -> subprocess.Popen[bytes]:
    """A gateway worker as the supervisor starts it, from a snapshot on disk."""
    pepper = b"p" * 32
    (directory / "pepper").write_bytes(pepper)
    (directory / "snapshot.json").write_bytes(msgspec.json.encode(_snapshot(upstreams, pepper)))
    (directory / "board").mkdir()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen(1024)
        boot = WorkerBoot(
            fleet=FleetName("bench"),
            index=0,
            listen_fds=(listener.fileno(),),
            lifeline_fd=None,
            snapshot_path=str(directory / "snapshot.json"),
            control_socket=str(directory / "control.sock"),
            board_dir=str(directory / "board"),
            pepper_path=str(directory / "pepper"),
        )
        (directory / "boot.json").write_bytes(msgspec.json.encode(boot))
        argv = [sys.executable, "-P", "-m", "pilothouse.gateway.worker", str(directory / "boot.json")]
        log = (directory / "worker.log").open("wb")
        env = {"PATH": os.environ["PATH"], **MALLOC}
        return subprocess.Popen(argv, env=env, pass_fds=(listener.fileno(),), stdout=log, stderr=log)


def _snapshot(upstreams: list[int], pepper: bytes) -> FleetSnapshot:
    replicas = tuple(
        ReplicaView(
            id=ReplicaId(f"m-{index}"),
            alias=f"m{index}",
            deployment=DeploymentName("m"),
            state=ReplicaState.READY,
            endpoint=Endpoint(host="127.0.0.1", port=port, authorization="Bearer engine"),
        )
        for index, port in enumerate(upstreams)
    )
    deployment = DeploymentView(
        name=DeploymentName("m"),
        engine="fake",
        routes=tuple(Route),
        reserved_headers=("x-vllm-priority",),
        reserved_fields=("priority", "cache_salt", "vllm_xargs"),
        replicas=replicas,
    )
    digest = hmac.digest(pepper, KEY.encode(), "sha256").hex()
    return FleetSnapshot(
        fleet=FleetName("bench"),
        version=1,
        models=(ModelView(name=ModelName("m"), created=1, deployments=(deployment,)),),
        keys=(KeyView(id=KeyId("key_bench"), tenant=TenantId("bench"), digest=digest),),
    )


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def _running(argv: list[str], port: int) -> Iterator[None]:
    with _stopping(subprocess.Popen(argv)):
        wait_for(lambda: _listens(port), f"port {port}")
        yield


@contextlib.contextmanager
def _stopping(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main("foundation", measure())
