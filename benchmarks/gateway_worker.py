"""Gateway workers for measurements, as the supervisor starts them, with every feature turned on."""

import hmac
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from pilothouse.cli.worker_processes import MALLOC
from pilothouse.model.boot import WorkerBoot
from pilothouse.model.fleet import (
    Capacity,
    DeploymentView,
    Endpoint,
    FleetSnapshot,
    ModelView,
    ReplicaState,
    ReplicaView,
)
from pilothouse.model.ids import DeploymentName, FleetName, KeyId, ModelName, OrganisationId, ReplicaId, TenantId
from pilothouse.model.requests import Route
from pilothouse.model.spec import Timeouts
from pilothouse.model.tenants import (
    BudgetLimit,
    Key,
    Limits,
    Organisation,
    Period,
    Price,
    RateLimit,
    Tenant,
    TenantDirectory,
)
from pilothouse.store.directory_file import write_directory

KEY = "sk-bench-2f6c1b7de0a94c58"  # of a form that every proxy takes
MODEL = "m"
_PEPPER = b"p" * 32


Start = Callable[[int, list[int], Path], list[subprocess.Popen[bytes]]]

TENANTS, KEYS_OF_EACH = 10_000, 10


def start(port: int, upstreams: list[int], directory: Path, workers: int = 1) -> list[subprocess.Popen[bytes]]:
    """Workers on one socket, before `upstreams`. On: keys, routing, accounting, metrics, time-outs by route, origins
    of web pages, and an access log of every request. Traces are an extra, and off as they are by default.
    """
    write_files(upstreams, directory)
    return _start(port, directory, workers)


def start_with_tenants(port: int, upstreams: list[int], directory: Path) -> list[subprocess.Popen[bytes]]:
    """One worker with 10,000 tenants and 100,000 keys, limits, a price and a queue, and who keeps the limits."""
    write_files(upstreams, directory, priced=True)
    write_directory(directory / "tenants.bin", _many_tenants())
    keeper = subprocess.Popen([sys.executable, "-m", "benchmarks.lease_keeper", str(directory / "control.sock")])
    return [*_start(port, directory, 1), keeper]


def write_files(upstreams: list[int], directory: Path, *, priced: bool = False) -> None:
    """What a worker starts from."""
    (directory / "pepper").write_bytes(_PEPPER)
    (directory / "snapshot.json").write_bytes(msgspec.json.encode(_snapshot(upstreams, priced=priced)))
    write_directory(directory / "tenants.bin", _tenants())
    (directory / "board").mkdir(exist_ok=True)


def _start(port: int, directory: Path, workers: int) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(4096)
        return [_start_one(index, listener.fileno(), directory) for index in range(workers)]


def _start_one(index: int, listener: int, directory: Path) -> subprocess.Popen[bytes]:
    boot = WorkerBoot(
        fleet=FleetName("bench"),
        index=index,
        listen_fds=(listener,),
        lifeline_fd=None,
        snapshot_path=str(directory / "snapshot.json"),
        control_socket=str(directory / "control.sock"),
        board_dir=str(directory / "board"),
        pepper_path=str(directory / "pepper"),
        tenants_path=str(directory / "tenants.bin"),
        revocations_path=str(directory / "revoked"),
        spool_dir=str(directory / "spool"),
        cors_origins=("https://chat.example.com",),
        access_log_path=str(directory / f"access-{index}.log"),
    )
    path = directory / f"boot-{index}.json"
    path.write_bytes(msgspec.json.encode(boot))
    log = (directory / f"worker-{index}.log").open("wb")
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "pilothouse.gateway.worker", str(path)],
        env={"PATH": os.environ["PATH"], **MALLOC},
        pass_fds=(listener,),
        stdout=log,
        stderr=log,
    )


def _snapshot(upstreams: list[int], *, priced: bool) -> FleetSnapshot:
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
        capacity=Capacity(slots=256, tokens=10_000_000) if priced else None,
    )
    price = Price(input=1_000_000, output=3_000_000) if priced else None
    timeouts = {Route.CHAT_COMPLETIONS: Timeouts(total_s=600)}
    return FleetSnapshot(
        fleet=FleetName("bench"),
        version=1,
        models=(
            ModelView(name=ModelName(MODEL), created=1, deployments=(deployment,), timeouts=timeouts, price=price),
        ),
    )


def _many_tenants() -> TenantDirectory:
    rate = RateLimit(per_minute=1_000_000_000)
    budget = BudgetLimit(period=Period.MONTH, nano_money=1 << 52)
    limits = Limits(requests=rate, total_tokens=rate, budgets=(budget,))
    own = Limits(requests=rate)
    known = _tenants()
    (bench,) = known.tenants
    (key,) = known.keys
    tenants = [msgspec.structs.replace(bench, id=TenantId(f"tenant-{each}"), limits=limits) for each in range(TENANTS)]
    keys = [
        Key(
            id=KeyId(f"key_{each:024x}"),
            tenant=tenants[each % TENANTS].id,
            digest=hmac.digest(_PEPPER, str(each).encode(), "sha256"),
            limits=own,
        )
        for each in range(TENANTS * KEYS_OF_EACH)
    ]
    return TenantDirectory(
        version=1,
        organisations=known.organisations,
        tenants=(msgspec.structs.replace(bench, limits=limits), *tenants),
        keys=(msgspec.structs.replace(key, limits=own), *keys),
    )


def _tenants() -> TenantDirectory:
    acme, bench = OrganisationId("acme"), TenantId("bench")
    return TenantDirectory(
        version=1,
        organisations=(Organisation(id=acme, name="Acme"),),
        tenants=(Tenant(id=bench, organisation=acme, name="Bench"),),
        keys=(Key(id=KeyId("key_bench"), tenant=bench, digest=hmac.digest(_PEPPER, KEY.encode(), "sha256")),),
    )
