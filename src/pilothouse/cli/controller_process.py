"""The controller's process: `python -P -m pilothouse.cli.controller_process BOOT.json`.

The controller, the admin API and its listener on one event loop. SIGTERM, or the end of the supervisor, stops the
replicas and ends it; SIGHUP has the fleet file read again.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import uvloop

from pilothouse.cli.fleet_loading import load_checked
from pilothouse.cli.listeners import bound_address
from pilothouse.config.paths import fleet_paths
from pilothouse.console.admin import build_app
from pilothouse.console.server import AdminServer
from pilothouse.console.tenant_routes import TenantAdministration
from pilothouse.controller.controller import Controller
from pilothouse.model.boot import ControllerBoot
from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import FleetSpec, ListenAddress
from pilothouse.model.status import FleetStatus, ReloadResult
from pilothouse.store.admin_token import ensure_admin_token
from pilothouse.store.ledger import Ledger
from pilothouse.store.revocations import RevocationFile
from pilothouse.store.tenants import TenantStore
from pilothouse.telemetry import logs
from pilothouse.telemetry.exposition import Exposition

_LOG = logging.getLogger(__name__)


class _Operations:
    """The controller as the admin API sees it: with the addresses as the supervisor bound them."""

    def __init__(self, controller: Controller, gateway: ListenAddress, admin: ListenAddress) -> None:
        self._controller = controller
        self._gateway = str(gateway)
        self._admin = str(admin)

    def status(self) -> FleetStatus:
        return msgspec.structs.replace(self._controller.status(), gateway=self._gateway, admin=self._admin)

    async def reload(self) -> ReloadResult:
        return await self._controller.reload()

    def metrics_text(self, accept: str) -> Exposition:
        return self._controller.metrics_text(accept)


class _LoggedProgress:
    """Progress of downloads in the log: the first and the last word of each phase. May be told from any thread."""

    def update(self, phase: str, done: int, total: int | None) -> None:
        if done in (0, total):
            _LOG.info("weights: %s", phase, extra={"done_bytes": done, "total_bytes": total})


async def serve(boot: ControllerBoot, env: Mapping[str, str]) -> None:
    """Run the controller until it is told to stop, and return when its replicas have ended.

    Raises:
        PilothouseError: it cannot start.
    """
    paths = fleet_paths(boot.fleet, env)
    # The supervisor runs us in a directory without a fleet file: without a path it is the built-in fleet.
    file = None if boot.fleet_file is None else Path(boot.fleet_file)

    def load_spec() -> FleetSpec:
        return load_checked(file, boot.overrides, env).spec

    spec = load_spec()
    database = spec.controller.database or paths.database
    with (
        TenantStore(database, paths.pepper, RevocationFile(paths.revocations)) as tenants,
        Ledger(database) as ledger,
        socket.socket(fileno=boot.admin_fd) as listener,
    ):
        controller = Controller(
            spec,
            paths,
            env=env,
            load_spec=load_spec,
            tenants=tenants,
            ledger=ledger,
            progress=_LoggedProgress(),
            fleet_file=boot.fleet_file,
        )
        operations = _Operations(controller, boot.gateway, bound_address(listener))
        administration = TenantAdministration(tenants, ledger, controller.refresh_tenants)
        server = AdminServer(build_app(operations, token=ensure_admin_token(paths.admin_token), tenants=administration))
        stop = asyncio.Event()
        with _told_to_stop(stop, boot.lifeline_fd), _reloads(controller):
            serving = asyncio.get_running_loop().create_task(server.serve_on(listener))
            try:
                await controller.start()
                await stop.wait()
                await controller.stop()
            finally:
                server.should_exit = True
                await serving


@contextlib.contextmanager
def _told_to_stop(stop: asyncio.Event, lifeline: int | None) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def supervisor_gone() -> None:
        assert lifeline is not None
        loop.remove_reader(lifeline)
        _LOG.warning("the supervisor is gone: the fleet is stopped")
        stop.set()

    for number in signals:
        loop.add_signal_handler(number, stop.set)
    if lifeline is not None:
        loop.add_reader(lifeline, supervisor_gone)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
        if lifeline is not None:
            loop.remove_reader(lifeline)


@contextlib.contextmanager
def _reloads(controller: Controller) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        try:
            await controller.reload()
        except PilothouseError as error:
            _LOG.error("the fleet file was not taken: %s", error.message, extra={"code": error.code})

    def hang_up() -> None:
        task = loop.create_task(reload())
        running.add(task)
        task.add_done_callback(running.discard)

    loop.add_signal_handler(signal.SIGHUP, hang_up)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        for task in running:
            task.cancel()


def main() -> int:
    """Run a controller to its end: 0 after an orderly stop, 1 if it could not start."""
    boot = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ControllerBoot)
    logs.configure("controller", human=False)
    try:
        uvloop.run(serve(boot, os.environ))
    except PilothouseError as error:
        _LOG.error("the controller cannot go on: %s", error.message, extra={"code": error.code, "hint": error.hint})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
