"""Which fleet a command means, and whom to call there."""

from collections.abc import Mapping

from pilothouse.cli.fleet_record import SupervisorRecord, gateway_url, is_alive, read_record
from pilothouse.cli.output import CommandError
from pilothouse.cli.target import Target
from pilothouse.config.paths import FleetPaths, fleet_paths
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName
from pilothouse.store import credentials

DEFAULT_FLEET = FleetName("default")
FLEET_VARIABLE = "PILOTHOUSE_FLEET"


def chosen_fleet(name: str | None, env: Mapping[str, str]) -> FleetPaths:
    """The fleet that was named; without a name the one that runs, or the only one that ever ran.

    Raises:
        CommandError: several are running.
    """
    if name is not None:
        return fleet_paths(FleetName(name), env)
    known = known_fleets(env)
    running = [paths for paths in known.values() if running_record(paths) is not None]
    if len(running) > 1:
        names = ", ".join(name for name, paths in known.items() if paths in running)
        raise CommandError(f"several fleets are running: {names}", hint="say which one with --fleet NAME")
    if running:
        return running[0]
    return next(iter(known.values())) if len(known) == 1 else fleet_paths(DEFAULT_FLEET, env)


def known_fleets(env: Mapping[str, str]) -> dict[str, FleetPaths]:
    """Every fleet that has state on this host, by name."""
    home = fleet_paths(DEFAULT_FLEET, env).state_dir.parent
    names = sorted(each.name for each in home.iterdir() if each.is_dir()) if home.is_dir() else []
    return {name: fleet_paths(FleetName(name), env) for name in names}


def running_record(paths: FleetPaths) -> SupervisorRecord | None:
    """The record of the fleet's supervisor if it runs."""
    record = read_record(paths.supervisor_record)
    return record if record is not None and is_alive(record.process) else None


def require_running(paths: FleetPaths) -> SupervisorRecord:
    """The record of the fleet's supervisor.

    Raises:
        PilothouseError: fleet_not_running.
    """
    record = running_record(paths)
    if record is None:
        raise PilothouseError("fleet_not_running", f"the fleet {paths.state_dir.name} is not running")
    return record


def data_plane(url: str | None, fleet: str | None, env: Mapping[str, str]) -> Target:
    """Whom `chat` and `bench` call: `--url`, else the running fleet; with PILOTHOUSE_API_KEY, else the stored key.

    The stored key goes only to its own fleet: to another URL only if the fleet is named too.

    Raises:
        PilothouseError: fleet_not_running, state_unreadable.
        CommandError: several fleets are running.
    """
    if url is not None and fleet is None:
        return Target(url=_without_version(url), api_key=env.get(credentials.OVERRIDE_VARIABLE))
    paths = chosen_fleet(fleet, env)
    address = _without_version(url) if url is not None else gateway_url(require_running(paths))
    key = credentials.operator_key(paths.credentials, FleetName(paths.state_dir.name), env)
    return Target(url=address, api_key=key)


def _without_version(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1")
