import os
import subprocess
from pathlib import Path

import pytest

from pilothouse.cli.fleet_record import (
    SupervisorRecord,
    base_url,
    is_alive,
    read_record,
    take_lock,
    write_record,
)
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName
from pilothouse.model.spec import ListenAddress
from pilothouse.placement.processes import ProcessIdentity, identify


def record_of(process: ProcessIdentity) -> SupervisorRecord:
    return SupervisorRecord(
        fleet=FleetName("default"),
        version="0.1.0",
        process=process,
        gateway=ListenAddress(host="0.0.0.0", port=8080),
        admin=ListenAddress(host="127.0.0.1", port=8081),
        fleet_file=None,
        drain_timeout_s=30.0,
    )


def myself() -> ProcessIdentity:
    found = identify(os.getpid())
    assert found is not None
    return found


def test_a_record_comes_back_as_it_was_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.json"
    write_record(path, record_of(myself()))
    assert read_record(path) == record_of(myself())
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"fleet": 1}'])
def test_what_cannot_be_read_is_no_record(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "supervisor.json"
    if content is not None:
        path.write_bytes(content)
    assert read_record(path) is None


def test_the_lock_has_one_holder_who_is_named(tmp_path: Path) -> None:
    lock, path = tmp_path / "lock", tmp_path / "supervisor.json"
    held = take_lock(lock, path)
    try:
        with pytest.raises(PilothouseError, match="just starting") as refused:
            take_lock(lock, path)
        assert refused.value.code == "fleet_already_running"
        write_record(path, record_of(myself()))
        with pytest.raises(PilothouseError, match=rf"process {os.getpid()}\) at http://127.0.0.1:8080"):
            take_lock(lock, path)
    finally:
        os.close(held)


def test_a_fleet_of_another_session_with_another_runtime_directory_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.json"
    write_record(path, record_of(myself()))
    with pytest.raises(PilothouseError, match="already running"):
        take_lock(tmp_path / "lock", path)


def test_the_record_of_a_killed_supervisor_is_in_nobody_s_way(tmp_path: Path) -> None:
    lock, path = tmp_path / "lock", tmp_path / "supervisor.json"
    me = myself()
    write_record(path, record_of(ProcessIdentity(pid=me.pid, start_ticks=0, boot_id=me.boot_id)))
    os.close(take_lock(lock, path))
    os.close(take_lock(lock, path))


def test_the_lock_lives_on_in_an_inherited_copy(tmp_path: Path) -> None:
    lock, path = tmp_path / "lock", tmp_path / "supervisor.json"
    held = take_lock(lock, path)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(held,)) as heir:
        os.close(held)
        with pytest.raises(PilothouseError):
            take_lock(lock, path)
        heir.communicate()
    os.close(take_lock(lock, path))


def test_a_process_with_a_used_number_is_another_process() -> None:
    me = myself()
    assert is_alive(me)
    assert not is_alive(ProcessIdentity(pid=me.pid, start_ticks=me.start_ticks + 1, boot_id=me.boot_id))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),
        ("::", "http://[::1]:8080"),
        ("10.0.0.7", "http://10.0.0.7:8080"),
    ],
)
def test_a_client_is_given_an_address_it_can_call(host: str, url: str) -> None:
    assert base_url(ListenAddress(host=host, port=8080)) == url
