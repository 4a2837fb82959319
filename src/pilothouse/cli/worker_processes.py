"""The gateway's workers as children of the supervisor: how they are started, and replaced without losing a request."""

import asyncio
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from pilothouse.cli.child import ChildSpec
from pilothouse.cli.fleet_loading import load_checked
from pilothouse.cli.fleet_record import ChildRecord, WorkersRestart
from pilothouse.cli.supervisor import Supervisor
from pilothouse.config.paths import FleetPaths
from pilothouse.gateway.tls import make_context
from pilothouse.model.boot import WorkerBoot
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName
from pilothouse.model.spec import GatewaySpec, ListenAddress, TokenIssuerSpec
from pilothouse.store.private_files import replace_private
from pilothouse.telemetry.board import board_path, read_board
from pilothouse.telemetry.traces import require_tracing

WORKER_STAGE = 0
"""Workers are stopped first: they drain while the controller and its replicas still serve them."""

READY_WITHIN_S = 15.0
"""A worker is ready within a second; a machine that is busy with many of them is given more."""

_PREFIX = "worker-"
_WORKER_MARGIN_S = 5.0  # a worker that drains ends by itself at the end of its drain time

_WORKER_ENVIRONMENT = (
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH",
)  # fmt: skip
"""What a worker gets of the operator's environment. It talks to strangers, and needs no secret that may be there."""

MALLOC = {
    # Above glibc's dynamic threshold every body of some hundred KB is mapped and unmapped again: page faults made a
    # 200 KB request twice as expensive. 32 MiB is the most that every glibc takes; its setting also ends the trimming
    # of the heap's top after each large body.
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(128 * 1024 * 1024),
}

_LOG = logging.getLogger(__name__)


class SupervisorBoot(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor starts from. The descriptors are open in its process and belong to it from then on."""

    fleet: FleetName
    fleet_file: str | None
    overrides: dict[str, str]
    gateway: ListenAddress
    gateway_fds: tuple[int, ...]
    admin: ListenAddress
    admin_fd: int
    lock_fd: int
    spec: GatewaySpec
    token_issuers: tuple[TokenIssuerSpec, ...] = ()


def require_for_workers(spec: GatewaySpec, token_issuers: Sequence[TokenIssuerSpec]) -> None:
    """See that a worker could start with these settings.

    Raises:
        PilothouseError: tls_unusable, tracing_not_installed, extra_not_installed.
    """
    if token_issuers and importlib.util.find_spec("joserfc") is None:
        raise PilothouseError("extra_not_installed", "`auth.jwt` needs joserfc.", hint="pip install 'pilothouse[jwt]'")
    if spec.shared_limits.redis is not None and importlib.util.find_spec("redis") is None:
        raise PilothouseError(
            "extra_not_installed", "Limits in Redis need its client.", hint="pip install 'pilothouse[redis]'"
        )
    if spec.tls is not None:
        make_context(spec.tls)
    if spec.traces is not None:
        require_tracing()


def worker_specs(
    boot: SupervisorBoot, paths: FleetPaths, env: Mapping[str, str], lifeline: int, indices: Iterable[int]
) -> list[ChildSpec]:
    """The workers with these indices."""
    specs = []
    sample = boot.spec.access_log_sample
    shared = boot.spec.shared_limits
    if shared.open_share is None:
        shared = msgspec.structs.replace(shared, open_share=1.0 / boot.spec.workers)
    for index in indices:
        worker = WorkerBoot(
            fleet=boot.fleet,
            index=index,
            listen_fds=boot.gateway_fds,
            lifeline_fd=lifeline,
            snapshot_path=str(paths.snapshot),
            control_socket=str(paths.control_socket),
            board_dir=str(paths.board_dir),
            pepper_path=str(paths.pepper),
            tenants_path=str(paths.tenants),
            revocations_path=str(paths.revocations),
            spool_dir=str(paths.spool_dir),
            limits=boot.spec.limits,
            tls=boot.spec.tls,
            cors_origins=boot.spec.cors_origins,
            access_log_path=None if sample is None else str(paths.logs_dir / f"access-{index}.log"),
            access_log_sample=sample or 0.0,
            traces=boot.spec.traces,
            shared_limits=shared,
            queue=boot.spec.queue,
            workers=boot.spec.workers,
            token_issuers=boot.token_issuers,
        )
        name = f"{_PREFIX}{index}"
        specs.append(
            ChildSpec(
                name=name,
                argv=module_argv("pilothouse.gateway.worker", boot_file(paths, name, worker)),
                env={each: env[each] for each in _WORKER_ENVIRONMENT if each in env} | MALLOC,
                log_path=paths.logs_dir / f"{name}.log",
                cwd=paths.state_dir,
                inherits=(*boot.gateway_fds, lifeline),
                stop_stage=WORKER_STAGE,
                stop_grace_s=boot.spec.limits.drain_timeout_s + _WORKER_MARGIN_S,
            )
        )
    return specs


def worker_index(name: str) -> int:
    """The index of the worker that is called so."""
    return int(name.removeprefix(_PREFIX))


def module_argv(name: str, boot: Path) -> tuple[str, ...]:
    """How a module of ours is run as a process."""
    return (sys.executable, "-P", "-m", name, str(boot))


def boot_file(paths: FleetPaths, name: str, boot: msgspec.Struct) -> Path:
    """Write down what a process starts from; the file's path."""
    path = paths.boot_dir / f"{name}.json"
    replace_private(path, msgspec.json.encode(boot))
    return path


class WorkersRestarter:
    """Replaces the workers: new ones take the sockets, old ones finish what they have, up to the drain limit.

    The fleet file is read again first, for the number of workers and their limits; one with a mistake changes nothing.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        boot: SupervisorBoot,
        paths: FleetPaths,
        env: Mapping[str, str],
        lifeline: int,
        keep_record: Callable[..., None],
    ) -> None:
        self._supervisor = supervisor
        self._boot = boot
        self._paths = paths
        self._env = env
        self._lifeline = lifeline
        self._keep_record = keep_record
        self._number = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start a restart, unless one is under way or the fleet stops."""
        if self._supervisor.stopping or (self._task is not None and not self._task.done()):
            return
        self._number += 1
        self._keep_record(restart=WorkersRestart(number=self._number, running=True))
        self._task = asyncio.get_running_loop().create_task(self._restart())

    async def _restart(self) -> None:
        problem = ""
        try:
            self._read_fleet_file()
            _LOG.info("the workers are being replaced")
            specs = worker_specs(self._boot, self._paths, self._env, self._lifeline, self._free_indices())
            if not await self._supervisor.replace(WORKER_STAGE, specs, self._is_ready, READY_WITHIN_S):
                problem = "the new workers did not get ready; the old ones serve on"
        except (PilothouseError, OSError) as error:
            problem = str(error)
        if problem:
            _LOG.error("the workers were not replaced: %s", problem)
        self._keep_record(restart=WorkersRestart(number=self._number, problem=problem))

    def _read_fleet_file(self) -> None:
        if self._boot.fleet_file is None:
            return  # the built-in fleet stays as it is
        loaded = load_checked(Path(self._boot.fleet_file), self._boot.overrides, self._env)
        spec = loaded.spec
        require_for_workers(spec.gateway, spec.token_issuers)
        self._boot = msgspec.structs.replace(self._boot, spec=spec.gateway, token_issuers=spec.token_issuers)

    def _free_indices(self) -> list[int]:
        """The lowest that no running worker has: each worker has a board of its own."""
        taken = {worker_index(name) for name in self._supervisor.names(WORKER_STAGE)}
        return [index for index in range(len(taken) + self._boot.spec.workers) if index not in taken][
            : self._boot.spec.workers
        ]

    def _is_ready(self, child: ChildRecord) -> bool:
        """A worker shows on its board that it serves by a snapshot."""
        try:
            board = read_board(board_path(self._paths.board_dir, worker_index(child.name)))
        except PilothouseError:
            return False
        return child.process is not None and board.pid == child.process.pid and board.snapshot_version > 0
