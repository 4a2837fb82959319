import os
import socket

import pytest

from pilothouse.placement import host


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the host's pages say, in place of the real ones."""
    pages: dict[str, str] = {}
    monkeypatch.setattr(host, "_read", lambda path: pages.get(str(path), ""))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    return pages


def test_without_limits_the_affinity_counts(files: dict[str, str]) -> None:
    assert host.usable_cores() == 8
    files["/sys/fs/cgroup/cpu.max"] = "max 100000"
    assert host.usable_cores() == 8


@pytest.mark.parametrize(
    ("group", "outer", "cores"),
    [("300000 100000", "max 100000", 3), ("max 100000", "250000 100000", 2), ("50000 100000", "", 1), ("1 0", "", 8)],
)
def test_the_least_quota_of_all_groups_counts(files: dict[str, str], group: str, outer: str, cores: int) -> None:
    files["/proc/self/cgroup"] = "0::/pod/app\n"
    files["/sys/fs/cgroup/pod/app/cpu.max"] = group
    files["/sys/fs/cgroup/pod/cpu.max"] = outer
    assert host.usable_cores() == cores


def test_memory_is_the_least_that_anything_allows(files: dict[str, str]) -> None:
    assert host.available_memory_bytes() is None
    files["/proc/meminfo"] = "MemTotal: 9 kB\nMemAvailable:    2000 kB\nSwapFree: 1 kB"
    assert host.available_memory_bytes() == 2000 * 1024
    files["/proc/self/cgroup"] = "0::/pod\n"
    files["/sys/fs/cgroup/pod/memory.max"] = "1000000"
    files["/sys/fs/cgroup/pod/memory.current"] = "900000"
    files["/sys/fs/cgroup/pod/memory.stat"] = "anon 5\ninactive_file 300000"
    assert host.available_memory_bytes() == 400_000
    files["/sys/fs/cgroup/pod/memory.current"] = "1500000"
    assert host.available_memory_bytes() == 0
    files["/sys/fs/cgroup/pod/memory.max"] = "max"
    assert host.available_memory_bytes() == 2000 * 1024


def test_the_test_itself_has_memory_and_a_stranger_has_none() -> None:
    assert host.resident_bytes(os.getpid()) > 1024 * 1024
    assert host.resident_bytes(2**22 + 1) == 0


def test_a_free_port_can_be_listened_on() -> None:
    with socket.create_server((host.LOOPBACK, host.free_port(()))) as server:
        assert server.getsockname()[1] > 0


def test_a_port_that_is_set_aside_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_PORT_TRIES", 3)

    class Everything:
        def __contains__(self, port: object) -> bool:
            return True

        def __iter__(self) -> object:
            raise NotImplementedError

        def __len__(self) -> int:
            return 65536

    with pytest.raises(OSError, match="no free port"):
        host.free_port(Everything())  # type: ignore[arg-type]
