"""What this host has to give: cores, memory, ports. A container's limits count as the host's."""

import os
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

LOOPBACK = "127.0.0.1"
_PORT_TRIES = 64


def usable_cores() -> int:
    """Cores this process may use, by affinity and by the control group's quota; at least 1."""
    cores = len(os.sched_getaffinity(0))
    for group in _control_groups():
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            cores = min(cores, int(quota) // int(period))
    return max(1, cores)


def available_memory_bytes() -> int | None:
    """Memory that can be taken without swapping, by the kernel's estimate and the control group's limit.

    `None` where the kernel does not tell.
    """
    figures = [figure for figure in (_kernel_estimate(), *map(_left_in_group, _control_groups())) if figure is not None]
    return min(figures, default=None)


def resident_bytes(pid: int) -> int:
    """Memory that a process holds now, 0 when there is no such process."""
    fields = _read(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def free_port(taken: Collection[int]) -> int:
    """A port of the loopback address that nobody listens on, and that is not among `taken`.

    Nothing holds it until the replica listens: if another process comes first, the start fails and the next one gets
    another port.

    Raises:
        OSError: when there is none.
    """
    for _ in range(_PORT_TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port
    raise OSError("no free port on the loopback address")


def _kernel_estimate() -> int | None:
    for line in _read(Path("/proc/meminfo")).splitlines():
        name, _, figure = line.partition(":")
        if name == "MemAvailable":
            return int(figure.split()[0]) * 1024
    return None


def _left_in_group(group: Path) -> int | None:
    limit, used = _read(group / "memory.max"), _read(group / "memory.current")
    if not limit.isdecimal() or not used.isdecimal():
        return None
    # File pages that nobody has touched lately are given back on demand.
    statistics = dict(line.split(" ", 1) for line in _read(group / "memory.stat").splitlines() if " " in line)
    return max(0, int(limit) - int(used) + int(statistics.get("inactive_file", "0")))


def _control_groups() -> Iterator[Path]:
    """This process's control group (version 2) and those above it, each of which may limit it."""
    root = Path("/sys/fs/cgroup")
    own = [line[3:] for line in _read(Path("/proc/self/cgroup")).splitlines() if line.startswith("0::")]
    group = root / own[0].lstrip("/") if own else root
    while group != root and root in group.parents:
        yield group
        group = group.parent
    yield root


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
