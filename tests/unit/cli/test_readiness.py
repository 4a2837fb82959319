import os
from pathlib import Path

import pytest

from pilothouse.cli.fleet_record import ChildRecord, SupervisorRecord
from pilothouse.cli.readiness import raise_if_dying, raise_if_failed
from pilothouse.config.paths import FleetPaths
from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import ReplicaState
from pilothouse.model.ids import DeploymentName, FleetName, ModelName, ReplicaId
from pilothouse.model.spec import ListenAddress
from pilothouse.model.status import FleetStatus, ReplicaStatus
from pilothouse.placement.processes import ProcessIdentity, identify


def fleet(state: ReplicaState, detail: str, log_tail: tuple[str, ...] = ()) -> FleetStatus:
    replica = ReplicaStatus(
        id=ReplicaId("m-0"),
        model=ModelName("m"),
        deployment=DeploymentName("m"),
        engine="fake",
        state=state,
        detail=detail,
        log_tail=log_tail,
    )
    return FleetStatus(
        fleet=FleetName("default"),
        version="0.1.0",
        gateway="127.0.0.1:1",
        admin="127.0.0.1:2",
        fleet_file=None,
        ready=False,
        snapshot_version=1,
        workers=(),
        replicas=(replica,),
    )


@pytest.mark.parametrize(
    ("state", "detail"),
    [
        (ReplicaState.PLACING, "download: 3% of 93 MiB"),
        (ReplicaState.FAILED, "exit code 1; next attempt after 0.5 s"),
        (ReplicaState.FAILED, "replica_start_failed: exit code 1; next attempt after 0.5 s"),
    ],
)
def test_what_may_still_come_up_is_waited_for(state: ReplicaState, detail: str) -> None:
    raise_if_failed(fleet(state, detail))


@pytest.mark.parametrize("code", ["replica_crash_loop", "not_enough_memory", "checksum_mismatch"])
def test_what_will_not_come_up_ends_the_start_with_its_code(code: str) -> None:
    with pytest.raises(PilothouseError) as failed:
        raise_if_failed(fleet(ReplicaState.FAILED, f"{code}: because: of it", ("one", "two")))
    assert failed.value.code == code
    assert failed.value.message == "m-0: because: of it\nits last log lines:\n  one\n  two"


@pytest.fixture
def paths(tmp_path: Path) -> FleetPaths:
    paths = FleetPaths(
        state_dir=tmp_path / "state",
        runtime_dir=tmp_path / "run",
        cache_dir=tmp_path / "cache",
        config_dir=tmp_path / "config",
    )
    paths.create()
    return paths


def record(process: ProcessIdentity, *, restarts: int = 0) -> SupervisorRecord:
    return SupervisorRecord(
        fleet=FleetName("default"),
        version="0.1.0",
        process=process,
        gateway=ListenAddress(host="127.0.0.1", port=1),
        admin=ListenAddress(host="127.0.0.1", port=2),
        fleet_file=None,
        drain_timeout_s=1.0,
        children=(ChildRecord(name="worker-0", process=None, restarts=restarts),),
    )


def myself() -> ProcessIdentity:
    found = identify(os.getpid())
    assert found is not None
    return found


def test_a_process_that_keeps_ending_ends_the_start_with_its_log(paths: FleetPaths) -> None:
    (paths.logs_dir / "worker-0.log").write_text("no pepper\n")
    raise_if_dying(paths, record(myself(), restarts=2))
    with pytest.raises(PilothouseError) as failed:
        raise_if_dying(paths, record(myself(), restarts=3))
    assert failed.value.code == "process_crash_loop"
    assert "worker-0 ended 3 times" in failed.value.message
    assert "  no pepper" in failed.value.message


def test_a_supervisor_that_is_gone_ends_the_start_with_its_log(paths: FleetPaths) -> None:
    (paths.logs_dir / "supervisor.log").write_text("oh\n")
    me = myself()
    dead = ProcessIdentity(pid=me.pid, start_ticks=0, boot_id=me.boot_id)
    for found in (None, record(dead)):
        with pytest.raises(PilothouseError, match="oh"):
            raise_if_dying(paths, found)
