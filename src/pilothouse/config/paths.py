"""Where a fleet's files are, by the XDG base directories. The only place that knows.

https://specifications.freedesktop.org/basedir-spec/latest/
"""

import hashlib
import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName

_APPLICATION = "pilothouse"
_SOCKET_PATH_LIMIT = 107  # bytes of sun_path in Linux's sockaddr_un, less the closing NUL
_PRIVATE = 0o700


class FleetPaths(msgspec.Struct, frozen=True, kw_only=True):
    """One fleet's directories, and the files in them. Nothing needs to exist; `create` makes the directories.

    `cache_dir` and `config_dir` are shared by all fleets of a user.
    """

    state_dir: Path
    runtime_dir: Path
    cache_dir: Path
    config_dir: Path

    @property
    def database(self) -> Path:
        """Durable state: keys."""
        return self.state_dir / "state.db"

    @property
    def pepper(self) -> Path:
        """The secret that keys are hashed with."""
        return self.state_dir / "pepper"

    @property
    def admin_token(self) -> Path:
        """The token of the admin API."""
        return self.state_dir / "admin_token"

    @property
    def advisories_dir(self) -> Path:
        """Advisories that were synced, and waivers."""
        return self.state_dir / "advisories"

    @property
    def logs_dir(self) -> Path:
        """One log file for each process."""
        return self.state_dir / "logs"

    @property
    def replicas_dir(self) -> Path:
        """One record for each replica's process."""
        return self.state_dir / "replicas"

    @property
    def snapshot(self) -> Path:
        """The last published snapshot, from which a worker starts without a controller."""
        return self.state_dir / "snapshot.json"

    @property
    def tenants(self) -> Path:
        """The last published directory of tenants and keys, from which a worker starts without a controller."""
        return self.state_dir / "tenants.bin"

    @property
    def revocations(self) -> Path:
        """What has been revoked lately: read by the workers themselves, so that it needs no controller."""
        return self.state_dir / "revoked"

    @property
    def spool_dir(self) -> Path:
        """Turns on their way to the ledger."""
        return self.state_dir / "spool"

    @property
    def supervisor_record(self) -> Path:
        """Who runs the fleet. Under state, so that it is found from a session with another runtime directory."""
        return self.state_dir / "supervisor.json"

    @property
    def control_socket(self) -> Path:
        """Where the controller speaks to the workers."""
        return self.runtime_dir / "control.sock"

    @property
    def lock(self) -> Path:
        """Held by the fleet's supervisor."""
        return self.runtime_dir / "lock"

    @property
    def boot_dir(self) -> Path:
        """The boot files that the supervisor writes for its children."""
        return self.runtime_dir / "boot"

    @property
    def board_dir(self) -> Path:
        """One memory-mapped board for each worker."""
        return self.runtime_dir / "board"

    @property
    def weights_dir(self) -> Path:
        """Weights that were fetched, and what is known of their checksums."""
        return self.cache_dir / "weights"

    @property
    def credentials(self) -> Path:
        """The operator's own keys."""
        return self.config_dir / "credentials"

    def create(self) -> None:
        """Make the directories, for the user alone. Those that exist are closed to others.

        Raises:
            PilothouseError: state_unreadable when one cannot be made, or could be swapped by somebody else.
        """
        for directory in (self.state_dir, self.runtime_dir):
            _make(directory.parent)
            _require_unswappable(directory.parent)
        for directory in (
            self.state_dir,
            self.runtime_dir,
            self.logs_dir,
            self.replicas_dir,
            self.boot_dir,
            self.board_dir,
            self.config_dir,
            self.weights_dir,
        ):
            _make(directory)
            _close_to_others(directory)


def fleet_paths(name: FleetName, env: Mapping[str, str]) -> FleetPaths:
    """The paths of a fleet under an environment. Nothing is read or made.

    A Unix socket's path is limited to 107 bytes: where `control.sock` would be longer, the runtime directory is one
    under the directory for temporary files, its name derived from the state directory's.

    Raises:
        PilothouseError: config_invalid when the name cannot be that of a directory.
    """
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise PilothouseError("config_invalid", f"{name!r} cannot be the name of a fleet")
    home = Path(env.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)
    state_dir = (_absolute(env, "XDG_STATE_HOME") or home / ".local" / "state") / _APPLICATION / name
    runtime_home = _absolute(env, "XDG_RUNTIME_DIR")
    paths = FleetPaths(
        state_dir=state_dir,
        runtime_dir=runtime_home / _APPLICATION / name if runtime_home else state_dir / "run",
        cache_dir=(_absolute(env, "XDG_CACHE_HOME") or home / ".cache") / _APPLICATION,
        config_dir=(_absolute(env, "XDG_CONFIG_HOME") or home / ".config") / _APPLICATION,
    )
    short = f"{_APPLICATION}-{os.getuid()}/{hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]}"
    for directory in (_absolute(env, "TMPDIR"), Path("/tmp")):
        if directory is not None and not _fits(paths.control_socket):
            paths = msgspec.structs.replace(paths, runtime_dir=directory / short)
    return paths


def _absolute(env: Mapping[str, str], variable: str) -> Path | None:
    """The directory that a variable names; the specification has relative ones ignored."""
    value = env.get(variable, "")
    return Path(value) if os.path.isabs(value) else None


def _fits(socket: Path) -> bool:
    return len(os.fsencode(socket)) <= _SOCKET_PATH_LIMIT


def _make(directory: Path) -> None:
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    try:
        for each in reversed(missing):
            each.mkdir(mode=_PRIVATE, exist_ok=True)
    except OSError as error:
        raise PilothouseError("state_unreadable", f"{error.filename} cannot be made: {error.strerror}") from error


def _close_to_others(directory: Path) -> None:
    status = directory.stat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PilothouseError("state_unreadable", f"{directory} is not a directory of this user")
    if status.st_mode & 0o077:
        directory.chmod(_PRIVATE)


def _require_unswappable(directory: Path) -> None:
    """Whoever may write to a directory may put others in the place of those in it."""
    status = directory.stat()
    writable = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    if status.st_uid not in {0, os.getuid()} or writable:
        raise PilothouseError("state_unreadable", f"{directory} belongs to another user, or others may write to it")
