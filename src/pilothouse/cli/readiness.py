"""Wait until a fleet that was just started can serve, or say why it will not."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx2

from pilothouse.cli.admin_client import AdminClient
from pilothouse.cli.fleet_record import ChildRecord, SupervisorRecord, gateway_url, is_alive, read_record
from pilothouse.config.paths import FleetPaths
from pilothouse.model.errors import ERRORS, PilothouseError
from pilothouse.model.fleet import ReplicaState
from pilothouse.model.status import FleetStatus, ReplicaStatus
from pilothouse.placement import log_files

_POLL_S = 0.1
_GIVE_UP_RESTARTS = 3  # a worker or controller that died as often before the fleet was ready has a cause that stays
_LOG_LINES = 20
_PASSING_FAILURES = frozenset({"replica_start_failed"})
"""What a replica may fail with and still come up at its next attempt; when it does not, it is a crash loop."""


async def wait_until_ready(
    paths: FleetPaths, workers: int, *, started: Callable[[], bool], show: Callable[[FleetStatus], None]
) -> None:
    """Return when every replica is ready, and every worker knows it.

    `started` says whether the supervisor is there; `show` is told what the replicas are doing.

    Raises:
        PilothouseError: what keeps the fleet from becoming ready, with the last lines of the log that says why.
    """
    while (record := read_record(paths.supervisor_record)) is None or not is_alive(record.process):
        if not started():
            raise _ended(paths)
        await asyncio.sleep(_POLL_S)
    async with AdminClient(paths, record) as admin, httpx2.AsyncClient(trust_env=False) as gateway:
        while True:
            raise_if_dying(paths, read_record(paths.supervisor_record))
            status = await _status(admin)
            if status is not None:
                show(status)
                raise_if_failed(status)
                if _all_know(status, workers) and await _answers(gateway, record):
                    return
            await asyncio.sleep(_POLL_S)


def raise_if_failed(status: FleetStatus) -> None:
    """Raise PilothouseError for a replica that will not become ready without a change."""
    for replica in status.replicas:
        code = replica.detail.partition(":")[0]
        if replica.state is ReplicaState.FAILED and code in ERRORS and code not in _PASSING_FAILURES:
            raise PilothouseError(code, _story(replica))


def raise_if_dying(paths: FleetPaths, record: SupervisorRecord | None) -> None:
    """Raise PilothouseError for a fleet whose supervisor is gone, or whose own processes do not stay."""
    if record is None or not is_alive(record.process):
        raise _ended(paths)
    for child in record.children:
        if child.restarts >= _GIVE_UP_RESTARTS:
            raise PilothouseError("process_crash_loop", _log_story(paths, child))


def _story(replica: ReplicaStatus) -> str:
    message = f"{replica.id}: {replica.detail.partition(':')[2].strip()}"
    if not replica.log_tail:
        return message
    return message + "\nits last log lines:\n" + _indented(replica.log_tail)


def _log_story(paths: FleetPaths, child: ChildRecord) -> str:
    return f"{child.name} ended {child.restarts} times\nits last log lines:\n" + _tail(paths.logs_dir, child.name)


def _ended(paths: FleetPaths) -> PilothouseError:
    return PilothouseError(
        "fleet_not_running", f"the supervisor ended\nits last log lines:\n{_tail(paths.logs_dir, 'supervisor')}"
    )


def _tail(logs: Path, name: str) -> str:
    return _indented(log_files.tail(logs / f"{name}.log", _LOG_LINES))


def _indented(lines: tuple[str, ...]) -> str:
    return "\n".join(f"  {line}" for line in lines)


def _all_know(status: FleetStatus, workers: int) -> bool:
    current = [each for each in status.workers if each.snapshot_version == status.snapshot_version]
    return status.ready and len(current) == workers


async def _status(admin: AdminClient) -> FleetStatus | None:
    try:
        return await admin.status()
    except PilothouseError as error:
        if error.code != "controller_unreachable":
            raise
        return None


async def _answers(client: httpx2.AsyncClient, record: SupervisorRecord) -> bool:
    if record.gateway_tls:
        return True  # its name may not be this host's, and it may want a certificate: the boards must do
    try:
        return (await client.get(f"{gateway_url(record)}/readyz")).status_code == 200
    except httpx2.HTTPError:
        return False
