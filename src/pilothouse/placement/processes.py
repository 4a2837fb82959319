"""Processes by identity rather than by number: a pid means something only with its start time and the boot.

Linux only: it reads /proc and waits on pidfds.
"""

import functools
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from pilothouse.model.errors import PilothouseError

_STATE_FIELD, _START_FIELD = 0, 19  # of /proc/PID/stat, counted after the command's name


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """One process, told from a later one of the same number. `start_ticks` is in clock ticks since boot."""

    pid: int
    start_ticks: int
    boot_id: str


def require_linux() -> None:
    """Refuse hosts without what this room stands on.

    Raises:
        PilothouseError: platform_not_supported.
    """
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/stat").exists():
        raise PilothouseError(
            "platform_not_supported", "replicas as local processes need Linux 5.3 or later with /proc mounted"
        )


@functools.cache
def boot_id() -> str:
    """The kernel's name for the time since it was started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this number now, `None` if there is none or it has ended and waits to be reaped."""
    fields = _stat_fields(pid)
    if fields is None or fields[_STATE_FIELD] in {b"Z", b"X"}:
        return None
    return ProcessIdentity(pid=pid, start_ticks=int(fields[_START_FIELD]), boot_id=boot_id())


def start_ticks(pid: int) -> int:
    """When a process that is ours to reap was started, also after it has ended."""
    fields = _stat_fields(pid)
    if fields is None:
        raise ProcessLookupError(pid)
    return int(fields[_START_FIELD])


def _stat_fields(pid: int) -> list[bytes] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command's name, in brackets, may itself hold brackets and spaces.
    return stat.rpartition(b")")[2].split()


def open_pidfd(identity: ProcessIdentity) -> int | None:
    """A descriptor that becomes readable when the process ends; `None` if it already has."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except OSError:
        return None
    # Between reading /proc and opening, the number may have passed to another process.
    if identify(identity.pid) != identity:
        os.close(pidfd)
        return None
    return pidfd


def signal_group(pid: int, number: signal.Signals) -> bool:
    """Send a signal to the process group that `pid` leads or led; whether there was one to receive it."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_groups(leaders: Iterable[ProcessIdentity], grace_s: float) -> None:
    """Ask the groups of these leaders to end, wait up to `grace_s` seconds, then end what is left. It blocks."""
    pidfds = {}
    for leader in leaders:
        pidfd = open_pidfd(leader)
        if pidfd is not None:
            pidfds[pidfd] = leader
            signal_group(leader.pid, signal.SIGTERM)
    try:
        for pidfd in _wait_readable(pidfds, grace_s):
            signal_group(pidfds[pidfd].pid, signal.SIGKILL)
        # A leader that has just ended may leave members of its group behind.
        for leader in pidfds.values():
            signal_group(leader.pid, signal.SIGKILL)
        _wait_readable(pidfds, timeout_s=5.0)  # a killed process goes as soon as the kernel lets it
    finally:
        for pidfd in pidfds:
            os.close(pidfd)


def _wait_readable(descriptors: Iterable[int], timeout_s: float) -> set[int]:
    """Wait until all descriptors are readable; those that are not when the time is over."""
    poller = select.poll()
    waiting = set(descriptors)
    for descriptor in waiting:
        poller.register(descriptor, select.POLLIN)
    end = time.monotonic() + timeout_s
    while waiting and (left := end - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(left * 1000):
            poller.unregister(descriptor)
            waiting.discard(descriptor)
    return waiting
