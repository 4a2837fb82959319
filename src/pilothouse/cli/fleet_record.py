"""Who runs a fleet: the lock that makes it one supervisor, and the record by which other commands find it.

A process id alone proves nothing, since ids are used again: processes are recorded by identity.
"""

import fcntl
import os
from pathlib import Path

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName
from pilothouse.model.spec import ListenAddress
from pilothouse.placement.processes import ProcessIdentity, identify
from pilothouse.store.private_files import replace_private


class ChildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One child of the supervisor, and how often it was started again. `process` is `None` while it is dead."""

    name: str
    process: ProcessIdentity | None
    restarts: int = 0


class WorkersRestart(msgspec.Struct, frozen=True, kw_only=True):
    """How the last restart of the workers went. `number` counts them; `problem` is empty when all went well."""

    number: int = 0
    running: bool = False
    problem: str = ""


class SupervisorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A running (or killed) supervisor, with the addresses as bound and the children as they are."""

    fleet: FleetName
    version: str
    process: ProcessIdentity
    gateway: ListenAddress
    gateway_tls: bool = False
    admin: ListenAddress
    fleet_file: str | None
    drain_timeout_s: float
    children: tuple[ChildRecord, ...] = ()
    restart: WorkersRestart = WorkersRestart()


def is_alive(process: ProcessIdentity | None) -> bool:
    """Whether this very process still runs."""
    return process is not None and identify(process.pid) == process


def write_record(path: Path, record: SupervisorRecord) -> None:
    """Put the record in place in one step, readable by the owner only.

    Raises:
        PilothouseError: state_unreadable.
    """
    replace_private(path, msgspec.json.encode(record))


def read_record(path: Path) -> SupervisorRecord | None:
    """The record, whether or not the supervisor lives; `None` when there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SupervisorRecord)
    except (OSError, msgspec.DecodeError):
        return None


def take_lock(lock: Path, record: Path) -> int:
    """Become the only supervisor: the lock is held as long as the returned descriptor, or a copy of it, is open.

    Raises:
        PilothouseError: fleet_already_running.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = True
    except BlockingIOError:
        is_ours = False
    found = read_record(record)
    # The lock is in the session's runtime directory: another session may have another one. The record has one place.
    runs = found is not None and is_alive(found.process)
    if is_ours and not runs:
        return descriptor
    os.close(descriptor)
    if found is None or not runs:
        raise PilothouseError("fleet_already_running", "another command is just starting this fleet")
    raise PilothouseError(
        "fleet_already_running",
        f"the fleet {found.fleet} is already running (process {found.process.pid}) at {gateway_url(found)}",
    )


def gateway_url(record: SupervisorRecord) -> str:
    """Where a client on this host reaches the data plane, without `/v1`."""
    return base_url(record.gateway, tls=record.gateway_tls)


def base_url(address: ListenAddress, *, tls: bool = False) -> str:
    """Where a client on this host reaches `address`, without a trailing slash."""
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    scheme = "https" if tls else "http"
    return f"{scheme}://{ListenAddress(host=loopback.get(address.host, address.host), port=address.port)}"
