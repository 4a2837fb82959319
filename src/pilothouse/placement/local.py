"""Replicas as processes of this host: each in a session of its own, recorded on disk, watched through a pidfd.

A replica goes through `place` (weights, memory, port, key), `launch` (the process) and `release`; a controller that
starts anew asks `adoptable` first. Nothing here decides anything: `policy/replica_lifecycle.py` does.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from pilothouse.config.paths import FleetPaths
from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import Endpoint
from pilothouse.model.ids import ReplicaId
from pilothouse.model.spec import DeploymentSpec, WeightsSpec
from pilothouse.model.units import WallNs
from pilothouse.placement import host, launcher, log_files
from pilothouse.placement.process_records import (
    ProcessRecord,
    RecordState,
    create_record,
    read_record,
    recorded_replicas,
    remove_record,
)
from pilothouse.placement.processes import (
    ProcessIdentity,
    boot_id,
    end_groups,
    open_pidfd,
    require_linux,
    signal_group,
    start_ticks,
)
from pilothouse.placement.weights import ProgressSink, resolve

MemoryNeed = Callable[[Path | None], int | None]
"""From the local weights to the bytes of host memory that one replica may come to need."""

ExitCallback = Callable[[int | None], None]
"""Told the exit code, negative for a signal, `None` for a process that was not our child."""

_PASSED_ON = (
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
)  # fmt: skip
"""All that an engine sees of the operator's environment: where things are, never tokens or keys."""

_RESET_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2)
_EARLIER_PROCESS_GRACE_S = 5.0


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """What is set aside for one start of a replica. `api_key` is what its callers must send; a secret."""

    replica: ReplicaId
    digest: str
    host: str
    port: int
    api_key: str
    weights: Path | None
    log_path: Path


class RunningProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A replica's process, started or adopted."""

    replica: ReplicaId
    pid: int
    started_at: WallNs
    endpoint: Endpoint


class _Watched:
    """A process whose end is awaited, with those who want to hear of it."""

    def __init__(self, identity: ProcessIdentity, pidfd: int, loop: asyncio.AbstractEventLoop) -> None:
        self.identity = identity
        self.pidfd = pidfd
        self.loop = loop
        self.ended = False
        self.status: int | None = None
        self.callbacks: list[ExitCallback] = []


class LocalPlacement:
    """The replicas of one fleet on this host. All methods belong to the thread of the running event loop.

    `env` is the operator's environment, of which engines see little and weights sources what they need.
    """

    def __init__(self, paths: FleetPaths, env: Mapping[str, str]) -> None:
        require_linux()
        self._paths = paths
        self._env = env
        self._placements: dict[ReplicaId, Placement] = {}
        self._needs: dict[ReplicaId, int] = {}
        self._watched: dict[ReplicaId, _Watched] = {}
        self._fetching: dict[str, asyncio.Lock] = {}

    async def place(
        self, deployment: DeploymentSpec, replica: ReplicaId, *, memory_need: MemoryNeed, progress: ProgressSink
    ) -> Placement:
        """Fetch and check the weights, see that the memory is there, set a port aside and make a key.

        Each start of a process needs a placement of its own; placing a replica again replaces the earlier one.

        Raises:
            PilothouseError: what the weights source says, not_enough_memory, or port_in_use when no port is free.
        """
        self._placements.pop(replica, None)
        self._needs.pop(replica, None)
        weights = await self._fetch(deployment.weights, progress) if deployment.weights else None
        need = memory_need(weights)
        if need is not None:
            self._require_memory(replica, need)
            self._needs[replica] = need
        try:
            port = host.free_port({each.port for each in self._placements.values()})
        except OSError as error:
            raise PilothouseError("port_in_use", f"{replica}: {error}") from error
        placement = Placement(
            replica=replica,
            digest=deployment.digest(),
            host=host.LOOPBACK,
            port=port,
            api_key=secrets.token_urlsafe(32),
            weights=weights,
            log_path=log_files.log_path(self._paths.logs_dir, replica),
        )
        self._placements[replica] = placement
        return placement

    async def launch(
        self, placement: Placement, *, argv: tuple[str, ...], env: Mapping[str, str], endpoint: Endpoint
    ) -> RunningProcess:
        """Start the process. `env` is added to the little that every engine gets.

        A process of the same replica that still runs, left by an earlier controller and not adopted, is ended first.

        Raises:
            PilothouseError: replica_start_failed or state_unreadable.
        """
        replica = placement.replica
        await self.end_recorded(replica, grace_s=_EARLIER_PROCESS_GRACE_S)
        record = ProcessRecord(
            replica=replica,
            digest=placement.digest,
            endpoint=endpoint,
            argv=argv,
            log_path=str(placement.log_path),
            launched_at=WallNs(time.time_ns()),
            boot_id=boot_id(),
        )
        pid = self._spawn(record, {name: self._env[name] for name in _PASSED_ON if name in self._env} | dict(env))
        pidfd = _open_pidfd_of_child(pid, replica)
        identity = ProcessIdentity(pid=pid, start_ticks=start_ticks(pid), boot_id=record.boot_id)
        self._watch(replica, identity, pidfd)
        return RunningProcess(replica=replica, pid=pid, started_at=record.launched_at, endpoint=endpoint)

    def adoptable(self, replica: ReplicaId, digest: str) -> RunningProcess | None:
        """The running process of this replica if it was started from the same deployment, watched from now on."""
        found = read_record(self._paths.replicas_dir, replica)
        if found is None or found[1] is not RecordState.RUNNING or found[0].digest != digest:
            return None
        record = found[0]
        watched = self._watched.get(replica)
        if watched is None or watched.identity != record.identity:
            pidfd = open_pidfd(record.identity)
            if pidfd is None:
                return None
            self._watch(replica, record.identity, pidfd)
        return RunningProcess(replica=replica, pid=record.pid, started_at=record.launched_at, endpoint=record.endpoint)

    def recorded(self) -> tuple[ReplicaId, ...]:
        """The replicas that have a record on disk, whether or not their processes still run."""
        return recorded_replicas(self._paths.replicas_dir)

    async def end_recorded(self, replica: ReplicaId, *, grace_s: float) -> None:
        """End what an earlier controller left of this replica, its whole group, and forget it."""
        await asyncio.to_thread(_end, self._paths.replicas_dir, (replica,), grace_s)

    def on_exit(self, pid: int, callback: ExitCallback) -> None:
        """Call back once, from the event loop, when a launched or adopted process has ended.

        Raises:
            KeyError: when no such process is watched.
        """
        for watched in self._watched.values():
            if watched.identity.pid == pid:
                if watched.ended:
                    watched.loop.call_soon(callback, watched.status)
                else:
                    watched.callbacks.append(callback)
                return
        raise KeyError(pid)

    def terminate(self, replica: ReplicaId) -> None:
        """Ask the replica's process group to end; nothing happens if it has."""
        self._signal(replica, signal.SIGTERM)

    def kill(self, replica: ReplicaId) -> None:
        """End the replica's process group now; nothing happens if it has ended."""
        self._signal(replica, signal.SIGKILL)

    def release(self, replica: ReplicaId) -> None:
        """Give back the port and the memory, and remove the record. What still runs of the replica is killed."""
        _end(self._paths.replicas_dir, (replica,), grace_s=0)
        self._placements.pop(replica, None)
        self._needs.pop(replica, None)

    def log_tail(self, replica: ReplicaId, lines: int = 20) -> tuple[str, ...]:
        """The last lines that the replica's latest process wrote."""
        return log_files.tail(log_files.log_path(self._paths.logs_dir, replica), lines)

    def close(self) -> None:
        """Stop watching. The processes run on, for a later controller to adopt."""
        for watched in self._watched.values():
            if not watched.ended:
                watched.loop.remove_reader(watched.pidfd)
                os.close(watched.pidfd)
        self._watched.clear()

    async def _fetch(self, spec: WeightsSpec, progress: ProgressSink) -> Path:
        # Replicas of one deployment want the same file: the first fetches it, the others find it.
        async with self._fetching.setdefault(spec.source, asyncio.Lock()):
            return await resolve(spec, cache_dir=self._paths.weights_dir, progress=progress, env=self._env)

    def _require_memory(self, replica: ReplicaId, need: int) -> None:
        available = host.available_memory_bytes()
        if available is None:
            return
        # Replicas that are still loading have not taken yet what they will.
        pledged = sum(max(0, pledge - self._resident(other)) for other, pledge in self._needs.items())
        if need > available - pledged:
            raise PilothouseError(
                "not_enough_memory",
                f"{replica} may need {_mib(need)}, but {_mib(max(0, available - pledged))} are free "
                f"({_mib(available)} now, {_mib(pledged)} of it for replicas that are loading)",
            )

    def _resident(self, replica: ReplicaId) -> int:
        watched = self._watched.get(replica)
        return host.resident_bytes(watched.identity.pid) if watched and not watched.ended else 0

    def _spawn(self, record: ProcessRecord, env: Mapping[str, str]) -> int:
        with contextlib.ExitStack() as stack:
            lock = create_record(self._paths.replicas_dir, record)
            stack.callback(os.close, lock)
            try:
                log = log_files.open_log(Path(record.log_path), record.replica)
                stack.callback(os.close, log)
                return os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-I", "-S", launcher.__file__, *record.argv],
                    env,
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_DUP2, log, 1),
                        (os.POSIX_SPAWN_DUP2, log, 2),
                        (os.POSIX_SPAWN_DUP2, lock, launcher.RECORD_FD),
                    ],
                    setsid=True,
                    setsigmask=[],
                    setsigdef=_RESET_SIGNALS,
                )
            except OSError as error:
                message = f"{record.replica} cannot be started: {error}"
                raise PilothouseError("replica_start_failed", message) from error

    def _watch(self, replica: ReplicaId, identity: ProcessIdentity, pidfd: int) -> None:
        watched = _Watched(identity, pidfd, asyncio.get_running_loop())
        self._watched[replica] = watched
        watched.loop.add_reader(pidfd, self._ended, watched)

    def _ended(self, watched: _Watched) -> None:
        watched.loop.remove_reader(watched.pidfd)
        os.close(watched.pidfd)
        # Before the leader is reaped its number cannot pass to a stranger.
        signal_group(watched.identity.pid, signal.SIGKILL)
        try:
            _, status = os.waitpid(watched.identity.pid, os.WNOHANG)
            watched.status = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            watched.status = None
        watched.ended = True
        for callback in watched.callbacks:
            callback(watched.status)
        watched.callbacks.clear()

    def _signal(self, replica: ReplicaId, number: signal.Signals) -> None:
        watched = self._watched.get(replica)
        if watched is not None and not watched.ended:
            signal_group(watched.identity.pid, number)


def end_recorded_processes(paths: FleetPaths, grace_s: float) -> list[str]:
    """End every process group that the fleet's records name, for `down`; the replicas that had something to end.

    Each is asked to end, and is killed after `grace_s` seconds. Processes that only have a recorded number are left
    alone: the start time must match. It blocks.

    Raises:
        PilothouseError: platform_not_supported, or state_unreadable.
    """
    require_linux()
    return _end(paths.replicas_dir, recorded_replicas(paths.replicas_dir), grace_s)


def _open_pidfd_of_child(pid: int, replica: ReplicaId) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        # Unwatched it would never be reaped.
        signal_group(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise PilothouseError("replica_start_failed", f"{replica} cannot be watched: {error.strerror}") from error


def _end(directory: Path, replicas: tuple[ReplicaId, ...], grace_s: float) -> list[str]:
    states: dict[ReplicaId, tuple[ProcessRecord, RecordState] | None] = {}
    unreadable: PilothouseError | None = None
    for replica in replicas:
        try:
            states[replica] = read_record(directory, replica)
        except PilothouseError as error:
            # The others are ended all the same.
            unreadable = error
    found = [each for each in states.values() if each is not None]
    end_groups([record.identity for record, state in found if state is RecordState.RUNNING], grace_s)
    for record, state in found:
        if state is RecordState.STRAGGLING:
            signal_group(record.pid, signal.SIGKILL)
    for replica in states:
        remove_record(directory, replica)
    if unreadable is not None:
        raise unreadable
    return [str(record.replica) for record, state in found if state is not RecordState.GONE]


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
