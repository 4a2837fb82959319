"""The fleet's processes under one supervisor: their boot files, environment and descriptors, signals, and the end.

`pilothouse up` runs this in its own process, `up --detach` in a session of its own (`supervisor_process.py`).
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path

import msgspec

import pilothouse
from pilothouse.cli.child import ChildSpec
from pilothouse.cli.fleet_record import SupervisorRecord, write_record
from pilothouse.cli.leftovers import end_leftovers
from pilothouse.cli.log_rotation import rotate_large_logs
from pilothouse.cli.supervisor import Supervisor
from pilothouse.cli.worker_processes import (
    SupervisorBoot,
    WorkersRestarter,
    boot_file,
    module_argv,
    worker_index,
    worker_specs,
)
from pilothouse.config.paths import FleetPaths
from pilothouse.model.boot import ControllerBoot
from pilothouse.model.errors import PilothouseError
from pilothouse.placement.processes import ProcessIdentity, identify
from pilothouse.telemetry.board import board_path, clear_gauges

CONTROLLER = "controller"
_CONTROLLER_MARGIN_S = 20.0  # after a drain, replicas have 10 s to end before they are killed
_ROTATE_EVERY_S = 10.0

_LOG = logging.getLogger(__name__)


async def supervise(
    boot: SupervisorBoot,
    paths: FleetPaths,
    env: Mapping[str, str],
    companion: Callable[[], Coroutine[None, None, None]] | None = None,
) -> None:
    """Run the fleet until SIGTERM or SIGINT, and return when nothing of it is left.

    A second SIGTERM or SIGINT ends everything at once. SIGHUP has the fleet file read again, SIGUSR1 replaces the
    workers. `companion` runs beside it, and is cancelled when the fleet stops; if it fails, the fleet is stopped, and
    its exception raised.
    """
    lifeline, lifeline_end = os.pipe()
    descriptors = _Descriptors(boot, lifeline, lifeline_end)
    record = _RecordKeeper(paths.supervisor_record, _record(boot))
    supervisor = Supervisor(
        [_controller(boot, paths, env, lifeline), *worker_specs(boot, paths, env, lifeline, range(boot.spec.workers))],
        on_death=lambda name: _clear_board(paths, name),
        on_change=lambda children: record.keep(children=children),
        on_stop=descriptors.close_gateway,
    )
    restarter = WorkersRestarter(supervisor, boot, paths, env, lifeline, record.keep)
    orderly = False
    try:
        with _signals(supervisor, restarter), _rotation(paths.logs_dir):
            async with _beside(supervisor, companion):
                orderly = await supervisor.run()
    finally:
        # A controller that could not end in its own time has left replicas.
        left = end_leftovers(paths, None)
        if left or not orderly:
            _LOG.warning("ended by force: %s", ", ".join(left) or "workers or the controller")
        paths.supervisor_record.unlink(missing_ok=True)
        descriptors.close_all()


class _RecordKeeper:
    """The record of this supervisor, on disk as in memory."""

    def __init__(self, path: Path, record: SupervisorRecord) -> None:
        self._path = path
        self._record = record
        write_record(path, record)

    def keep(self, **changes: object) -> None:
        """Change these fields."""
        self._record = msgspec.structs.replace(self._record, **changes)
        try:
            write_record(self._path, self._record)
        except PilothouseError as error:  # a full disk must not keep a child from being started again
            _LOG.warning("the record of processes was not written: %s", error.message)


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
        gateway_tls=boot.spec.tls is not None,
        admin=boot.admin,
        fleet_file=boot.fleet_file,
        drain_timeout_s=boot.spec.limits.drain_timeout_s,
    )


def _this_process() -> ProcessIdentity:
    found = identify(os.getpid())
    assert found is not None
    return found


def _controller(boot: SupervisorBoot, paths: FleetPaths, env: Mapping[str, str], lifeline: int) -> ChildSpec:
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
    return ChildSpec(
        name=CONTROLLER,
        argv=module_argv("pilothouse.cli.controller_process", boot_file(paths, CONTROLLER, controller)),
        env=env,
        log_path=paths.logs_dir / f"{CONTROLLER}.log",
        cwd=paths.state_dir,  # not the operator's directory: a ./fleet.yaml that appears there is not this fleet's
        inherits=(boot.admin_fd, lifeline),
        stop_stage=1,
        stop_grace_s=boot.spec.limits.drain_timeout_s + _CONTROLLER_MARGIN_S,
    )


def _clear_board(paths: FleetPaths, name: str) -> None:
    """A dead worker has nothing in flight: the controller must not wait for it when it drains a replica."""
    if name == CONTROLLER:
        return
    try:
        clear_gauges(board_path(paths.board_dir, worker_index(name)))
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
def _signals(supervisor: Supervisor, restarter: WorkersRestarter) -> Iterator[None]:
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

    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: hang_up, signal.SIGUSR1: restarter.begin}
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
