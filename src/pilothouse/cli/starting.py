"""What has to be there before a fleet's processes are started: file, engines, lock, ports, weights, keys.

What is missing is said before anything runs.
"""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from pilothouse.cli.fleet_loading import load_checked, overrides_of, require_allowed, verdicts_on
from pilothouse.cli.fleet_record import base_url, read_record, take_lock
from pilothouse.cli.leftovers import end_children, living_children, wait_gone
from pilothouse.cli.listeners import bound_address, listen
from pilothouse.cli.output import say
from pilothouse.cli.weights_progress import fetch_weights
from pilothouse.cli.welcome import welcome
from pilothouse.cli.worker_processes import SupervisorBoot, require_for_workers
from pilothouse.config.paths import FleetPaths, fleet_paths
from pilothouse.engines import registry
from pilothouse.model.ids import ModelName
from pilothouse.model.requests import Route
from pilothouse.model.spec import FleetSpec
from pilothouse.store.admin_token import ensure_admin_token
from pilothouse.store.keys import KeyStore, ensure_operator_key

_REPLICAS_S = 15.0  # what a controller whose supervisor was killed needs to stop its replicas, after the drain


class PreparedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet that only has to be started. `welcome` is what to print when it is ready."""

    paths: FleetPaths
    boot: SupervisorBoot
    welcome: str


def prepare(path: Path | None, settings: Sequence[str], env: Mapping[str, str]) -> PreparedFleet:
    """Prepare a fleet. The descriptors in its `boot` are open, and belong to the caller.

    Raises:
        PilothouseError, CommandError: what is in the way.
    """
    overrides = overrides_of(settings)
    loaded = load_checked(path, overrides, env)
    for warning in loaded.warnings:
        say(f"warning: {warning}")
    require_allowed(loaded, verdicts_on(loaded, env))
    spec = loaded.spec
    routes = _require_engines(spec)
    require_for_workers(spec.gateway, spec.token_issuers)
    paths = fleet_paths(spec.name, env)
    paths.create()
    with contextlib.ExitStack() as undo:
        lock = take_lock(paths.lock, paths.supervisor_record)
        undo.callback(os.close, lock)
        _clear_away(paths)
        gateway = [undo.enter_context(each) for each in listen(spec.gateway.listen, setting="gateway.listen")]
        admin = [undo.enter_context(each) for each in listen(spec.controller.listen, setting="controller.listen")]
        asyncio.run(fetch_weights(spec, paths, env))
        ensure_admin_token(paths.admin_token)
        with KeyStore(spec.controller.database or paths.database, paths.pepper) as store:
            key, _ = ensure_operator_key(store, paths.credentials, spec.name)
        boot = SupervisorBoot(
            fleet=spec.name,
            fleet_file=None if loaded.path is None else str(loaded.path),
            overrides=overrides,
            gateway=bound_address(gateway[0]),
            gateway_fds=tuple(os.dup(each.fileno()) for each in gateway),
            admin=bound_address(admin[0]),
            admin_fd=os.dup(admin[0].fileno()),
            lock_fd=os.dup(lock),
            spec=spec.gateway,
            token_issuers=spec.token_issuers,
        )
    url = base_url(boot.gateway, tls=spec.gateway.tls is not None)
    return PreparedFleet(paths=paths, boot=boot, welcome=welcome(url, key, routes))


def _require_engines(spec: FleetSpec) -> list[tuple[ModelName, tuple[Route, ...]]]:
    """See that every engine is installed; the routes of each model."""
    routes: dict[ModelName, tuple[Route, ...]] = {}
    for model in spec.models:
        for deployment in model.deployments:
            driver = registry.driver(deployment.engine.name)
            driver.require_installed(deployment)
            routes[model.name] = (*routes.get(model.name, ()), *driver.routes(deployment))
    return list(routes.items())


def _clear_away(paths: FleetPaths) -> None:
    """Let what a killed supervisor left end first: it may hold the ports. Replicas stay, and are adopted."""
    record = read_record(paths.supervisor_record)
    if record is None:
        return
    if children := living_children(record):
        say("waiting for what is left of an earlier run to end")
        wait_gone(children, record.drain_timeout_s + _REPLICAS_S)
        end_children(record)
