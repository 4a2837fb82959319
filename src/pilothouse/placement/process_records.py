"""What is known on disk of each replica's process, so that a later controller, or `down`, finds it.

`replicas/<replica>.json` holds one `ProcessRecord`, mode 0600, since it holds the replica's key. The file is locked
before the process exists, and the lock belongs to the process and to what it forks, as long as any of them lives:

1. the controller creates and locks the file, and writes the record without a pid;
2. it starts `launcher.py`, which inherits the locked descriptor, and closes its own;
3. the launcher writes its pid and start time, then becomes the engine.

A controller that is killed after any of these steps leaves either nothing that runs, or a record that names what
runs, or, for the milliseconds of step 3, a lock that is held on a record without a pid: whoever reads it then waits.
"""

import contextlib
import enum
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import Endpoint
from pilothouse.model.ids import ReplicaId
from pilothouse.model.units import WallNs
from pilothouse.placement.processes import ProcessIdentity, boot_id, identify

_LAUNCH_WAIT_S = 5.0  # the launcher needs some 20 ms, and more on a host that is short of memory
_POLL_S = 0.01


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One process. `pid` and `start_ticks` are 0 until the process has written its own."""

    replica: ReplicaId
    digest: str
    endpoint: Endpoint
    argv: tuple[str, ...]
    log_path: str
    launched_at: WallNs
    boot_id: str
    pid: int = 0
    start_ticks: int = 0

    @property
    def identity(self) -> ProcessIdentity:
        """The process that the record names."""
        return ProcessIdentity(pid=self.pid, start_ticks=self.start_ticks, boot_id=self.boot_id)


class RecordState(enum.Enum):
    """What a record says of the world now."""

    GONE = "nothing of it runs"
    RUNNING = "its process runs"
    STRAGGLING = "its process has ended, but some of its group have not"


def record_path(directory: Path, replica: ReplicaId) -> Path:
    """Where a replica's record is."""
    return directory / f"{replica}.json"


def create_record(directory: Path, record: ProcessRecord) -> int:
    """Write the record of a process that is about to be started; its locked descriptor, to be inherited and closed.

    Raises:
        PilothouseError: replica_start_failed when a process of this replica still runs, state_unreadable when the
            file cannot be written.
    """
    path = record_path(directory, record.replica)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PilothouseError("state_unreadable", f"{path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(record), 0)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            message = f"{record.replica}: an earlier process of this replica has not ended yet"
            raise PilothouseError("replica_start_failed", message) from error
        raise PilothouseError("state_unreadable", f"{path} cannot be written: {error.strerror}") from error
    return descriptor


def read_record(directory: Path, replica: ReplicaId) -> tuple[ProcessRecord, RecordState] | None:
    """A replica's record and what it means now; `None` when there is none.

    A record whose process is just being started is waited for, at most for a few seconds.
    """
    path = record_path(directory, replica)
    end = time.monotonic() + _LAUNCH_WAIT_S
    while True:
        # The lock first: once nobody holds it, what is read afterwards is final.
        locked = _is_locked(path)
        record = _decode(path)
        if record is not None and record.pid and identify(record.pid) == record.identity:
            return record, RecordState.RUNNING
        if not locked or (record is not None and record.boot_id != boot_id()):
            return None if record is None else (record, RecordState.GONE)
        if record is not None and record.pid:
            return record, RecordState.STRAGGLING
        if time.monotonic() > end:
            raise PilothouseError("state_unreadable", f"{path} is held by a process that does not say who it is")
        time.sleep(_POLL_S)


def recorded_replicas(directory: Path) -> tuple[ReplicaId, ...]:
    """The replicas that have a record, in the order of their names."""
    return tuple(ReplicaId(path.stem) for path in sorted(directory.glob("*.json")))


def remove_record(directory: Path, replica: ReplicaId) -> None:
    """Forget a replica's process, which must have ended."""
    record_path(directory, replica).unlink(missing_ok=True)


def _decode(path: Path) -> ProcessRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        # Half written by the launcher, or by somebody else: the lock tells which.
        return None


def _is_locked(path: Path) -> bool:
    with _opened(path) as descriptor:
        if descriptor is None:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)
