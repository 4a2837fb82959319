"""The fleet's processes under one supervisor: their boot files, environment and descriptors, signals, and the end.

`pilothouse up` runs this in its own process, `up --detach` in a session of its own (`supervisor_process.py`).
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path

import msgspec

import pilothouse
from pilothouse.cli.child import ChildSpec
from pilothouse.cli.fleet_record import ChildRecord, SupervisorRecord, write_record
from pilothouse.cli.leftovers import end_leftovers
from pilothouse.cli.log_rotation import rotate_large_logs
from pilothouse.cli.supervisor import Supervisor
from pilothouse.config.paths import FleetPaths
from pilothouse.model.boot import ControllerBoot, WorkerBoot
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName
from pilothouse.model.spec import GatewayLimits, ListenAddress
from pilothouse.placement.processes import ProcessIdentity, identify
from pilothouse.store.private_files import replace_private
from pilothouse.telemetry.board import board_path, clear_gauges

CONTROLLER = "controller"
_WORKER_MARGIN_S = 5.0  # a worker that drains ends by itself at the end of its drain time
_CONTROLLER_MARGIN_S = 20.0  # after a drain, replicas have 10 s to end before they are killed
_ROTATE_EVERY_S = 10.0

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
    workers: int
    limits: GatewayLimits


async def supervise(
    boot: SupervisorBoot,
    paths: FleetPaths,
    env: Mapping[str, str],
    companion: Callable[[], Coroutine[None, None, None]] | None = None,
) -> None:
    """Run the fleet until SIGTERM or SIGINT, and return when nothing of it is left.

    A second SIGTERM or SIGINT ends everything at once. SIGHUP has the fleet file read again. `companion` runs
    beside it, and is cancelled when the fleet stops; if it fails, the fleet is stopped, and its exception raised.
    """
    record = _record(boot)
    lifeline, lifeline_end = os.pipe()
    descriptors = _Descriptors(boot, lifeline, lifeline_end)

    def keep_record(children: tuple[ChildRecord, ...]) -> None:
        try:
            write_record(paths.supervisor_record, msgspec.structs.replace(record, children=children))
        except PilothouseError as error:  # a full disk must not keep a child from being started again
            _LOG.warning("the record of processes was not written: %s", error.message)

    write_record(paths.supervisor_record, record)
    supervisor = Supervisor(
        _children(boot, paths, env, lifeline),
        on_death=lambda name: _clear_board(paths, name),
        on_change=keep_record,
        on_stop=descriptors.close_gateway,
    )
    orderly = False
    try:
        with _signals(supervisor), _rotation(paths.logs_dir):
            async with _beside(supervisor, companion):
                orderly = await supervisor.run()
    finally:
        # A controller that could not end in its own time has left replicas.
        left = end_leftovers(paths, None)
        if left or not orderly:
            _LOG.warning("ended by force: %s", ", ".join(left) or "workers or the controller")
        paths.supervisor_record.unlink(missing_ok=True)
        descriptors.close_all()


class _Descriptors:
    """Closes what the supervisor holds, each once."""

    def __init__(self, boot: SupervisorBoot, *pipe: int) -> None:
        self._gateway = set(boot.gateway_fds)
        self._others = {boot.admin_fd, boot.lock_fd, *pipe}

    def close_gateway(self) -> None:
        """Let the workers' own copies be the last: when they close them, clients are refused and do not hang."""
        while self._gateway:
            os.close(self._gateway.pop())

    def close_all(self) -> None:
        """Everything: the lock too, so that the fleet can be started again."""
        self.close_gateway()
        while self._others:
            os.close(self._others.pop())


def _record(boot: SupervisorBoot) -> SupervisorRecord:
    return SupervisorRecord(
        fleet=boot.fleet,
        version=pilothouse.__version__,
        process=_this_process(),
        gateway=boot.gateway,
        admin=boot.admin,
        fleet_file=boot.fleet_file,
        drain_timeout_s=boot.limits.drain_timeout_s,
    )


def _this_process() -> ProcessIdentity:
    found = identify(os.getpid())
    assert found is not None
    return found


def _children(boot: SupervisorBoot, paths: FleetPaths, env: Mapping[str, str], lifeline: int) -> list[ChildSpec]:
    controller = ControllerBoot(
        fleet=boot.fleet,
        fleet_file=boot.fleet_file,
        overrides=boot.overrides,
        gateway=boot.gateway,
        admin_fd=boot.admin_fd,
        lifeline_fd=lifeline,
        state_dir=str(paths.state_dir),
        runtime_dir=str(paths.runtime_dir),
    )
    specs = [
        ChildSpec(
            name=CONTROLLER,
            argv=_module("pilothouse.cli.controller_process", _boot_file(paths, CONTROLLER, controller)),
            env=env,
            log_path=paths.logs_dir / f"{CONTROLLER}.log",
            cwd=paths.state_dir,  # not the operator's directory: a ./fleet.yaml that appears there is not this fleet's
            inherits=(boot.admin_fd, lifeline),
            stop_stage=1,
            stop_grace_s=boot.limits.drain_timeout_s + _CONTROLLER_MARGIN_S,
        )
    ]
    for index in range(boot.workers):
        worker = WorkerBoot(
            fleet=boot.fleet,
            index=index,
            listen_fds=boot.gateway_fds,
            lifeline_fd=lifeline,
            snapshot_path=str(paths.snapshot),
            control_socket=str(paths.control_socket),
            board_dir=str(paths.board_dir),
            pepper_path=str(paths.pepper),
            limits=boot.limits,
        )
        name = f"worker-{index}"
        specs.append(
            ChildSpec(
                name=name,
                argv=_module("pilothouse.gateway.worker", _boot_file(paths, name, worker)),
                env={each: env[each] for each in _WORKER_ENVIRONMENT if each in env} | MALLOC,
                log_path=paths.logs_dir / f"{name}.log",
                cwd=paths.state_dir,
                inherits=(*boot.gateway_fds, lifeline),
                stop_stage=0,
                stop_grace_s=boot.limits.drain_timeout_s + _WORKER_MARGIN_S,
            )
        )
    return specs


def _module(name: str, boot_file: Path) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", name, str(boot_file))


def _boot_file(paths: FleetPaths, name: str, boot: msgspec.Struct) -> Path:
    path = paths.boot_dir / f"{name}.json"
    replace_private(path, msgspec.json.encode(boot))
    return path


def _clear_board(paths: FleetPaths, name: str) -> None:
    """A dead worker has nothing in flight: the controller must not wait for it when it drains a replica."""
    if name == CONTROLLER:
        return
    try:
        clear_gauges(board_path(paths.board_dir, int(name.rpartition("-")[2])))
    except PilothouseError as error:
        _LOG.warning("the gauges of %s were not cleared: %s", name, error.message)


@contextlib.asynccontextmanager
async def _beside(
    supervisor: Supervisor, companion: Callable[[], Coroutine[None, None, None]] | None
) -> AsyncIterator[None]:
    if companion is None:
        yield
        return

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            supervisor.request_stop()

    task = asyncio.get_running_loop().create_task(companion())
    task.add_done_callback(ended)
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.contextmanager
def _signals(supervisor: Supervisor) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    had_terminal = _has_terminal()

    def stop() -> None:
        _LOG.info("stopping at once" if supervisor.stopping else "stopping: running requests have time to end")
        supervisor.request_stop()

    def hang_up() -> None:
        if had_terminal and not _has_terminal():
            stop()  # the window was closed: nobody could press Ctrl-C any more
        else:
            supervisor.send(CONTROLLER, signal.SIGHUP)

    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: hang_up}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _rotation(directory: Path) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def rotate() -> None:
        nonlocal timer
        try:
            rotate_large_logs(directory)
        except OSError as error:
            _LOG.warning("a log could not be put aside: %s", error)
        timer = loop.call_later(_ROTATE_EVERY_S, rotate)

    timer = loop.call_later(_ROTATE_EVERY_S, rotate)
    try:
        yield
    finally:
        timer.cancel()
