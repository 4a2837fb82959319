import fcntl
import os
import stat
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import Endpoint
from pilothouse.model.ids import ReplicaId
from pilothouse.model.units import WallNs
from pilothouse.placement import process_records
from pilothouse.placement.process_records import (
    ProcessRecord,
    RecordState,
    create_record,
    read_record,
    record_path,
    recorded_replicas,
    remove_record,
)
from pilothouse.placement.processes import boot_id, identify

A0 = ReplicaId("a-0")


def record_of(**changes: object) -> ProcessRecord:
    record = ProcessRecord(
        replica=A0,
        digest="d",
        endpoint=Endpoint(host="127.0.0.1", port=1, authorization="Bearer k"),
        argv=("engine", "--port", "1"),
        log_path="/logs/a-0.log",
        launched_at=WallNs(1),
        boot_id=boot_id(),
    )
    return msgspec.structs.replace(record, **changes)


def own_record(**changes: object) -> ProcessRecord:
    """A record that names the test's own process."""
    own = identify(os.getpid())
    assert own is not None
    return record_of(**{"pid": own.pid, "start_ticks": own.start_ticks, **changes})


def test_a_record_is_private_and_names_its_replica(tmp_path: Path) -> None:
    os.close(create_record(tmp_path, own_record()))
    assert stat.S_IMODE(record_path(tmp_path, A0).stat().st_mode) == 0o600
    assert recorded_replicas(tmp_path) == (A0,)
    assert read_record(tmp_path, A0) == (own_record(), RecordState.RUNNING)
    remove_record(tmp_path, A0)
    assert recorded_replicas(tmp_path) == ()
    assert read_record(tmp_path, A0) is None


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another"}, {"pid": 2**22 + 1}])
def test_a_record_of_another_process_is_of_nothing(tmp_path: Path, change: dict[str, object]) -> None:
    record = own_record(**change)
    os.close(create_record(tmp_path, record))
    assert read_record(tmp_path, A0) == (record, RecordState.GONE)


def test_a_held_lock_with_a_dead_leader_means_stragglers(tmp_path: Path) -> None:
    record = own_record(start_ticks=1)
    held = create_record(tmp_path, record)
    assert read_record(tmp_path, A0) == (record, RecordState.STRAGGLING)
    os.close(held)
    assert read_record(tmp_path, A0) == (record, RecordState.GONE)


def test_a_lock_of_before_the_last_boot_means_nothing(tmp_path: Path) -> None:
    held = create_record(tmp_path, own_record(boot_id="another"))
    found = read_record(tmp_path, A0)
    os.close(held)
    assert found is not None
    assert found[1] is RecordState.GONE


def test_a_process_being_started_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = create_record(tmp_path, record_of())

    def the_launcher_writes(_seconds: float) -> None:
        os.pwrite(held, msgspec.json.encode(own_record()), 0)

    monkeypatch.setattr(time, "sleep", the_launcher_writes)
    assert read_record(tmp_path, A0) == (own_record(), RecordState.RUNNING)
    os.close(held)


def test_a_record_that_is_being_written_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = create_record(tmp_path, record_of())
    os.ftruncate(held, 20)

    def the_launcher_writes(_seconds: float) -> None:
        os.pwrite(held, msgspec.json.encode(own_record()), 0)

    monkeypatch.setattr(time, "sleep", the_launcher_writes)
    assert read_record(tmp_path, A0) == (own_record(), RecordState.RUNNING)
    os.close(held)


def test_a_holder_that_never_says_who_it_is_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_records, "_LAUNCH_WAIT_S", 0.0)
    held = create_record(tmp_path, record_of())
    with pytest.raises(PilothouseError, match="does not say who it is") as caught:
        read_record(tmp_path, A0)
    os.close(held)
    assert caught.value.code == "state_unreadable"


def test_two_processes_of_one_replica_are_refused(tmp_path: Path) -> None:
    held = create_record(tmp_path, own_record())
    with pytest.raises(PilothouseError, match="has not ended yet") as caught:
        create_record(tmp_path, record_of())
    os.close(held)
    assert caught.value.code == "replica_start_failed"
    # And the record of the one that runs is as it was.
    assert read_record(tmp_path, A0) == (own_record(), RecordState.RUNNING)


def test_a_shorter_record_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    os.close(create_record(tmp_path, own_record(argv=("engine", "x" * 500))))
    os.close(create_record(tmp_path, own_record(argv=("e",))))
    assert read_record(tmp_path, A0) == (own_record(argv=("e",)), RecordState.RUNNING)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff"])
def test_a_damaged_record_that_nobody_holds_is_of_nothing(tmp_path: Path, content: bytes) -> None:
    record_path(tmp_path, A0).write_bytes(content)
    assert read_record(tmp_path, A0) is None
    assert recorded_replicas(tmp_path) == (A0,)


def test_the_lock_goes_with_the_descriptor_to_a_child(tmp_path: Path) -> None:
    held = create_record(tmp_path, record_of())
    with subprocess.Popen(["sleep", "60"], pass_fds=[held]) as child:
        os.close(held)
        with record_path(tmp_path, A0).open("rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        child.kill()
        child.wait()
        with record_path(tmp_path, A0).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
