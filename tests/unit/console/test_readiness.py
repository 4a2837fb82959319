"""Readiness: a fleet serves when somebody listens and every model has somebody to answer."""

import msgspec
import pytest

from pilothouse.console.readiness import checks, render
from pilothouse.model.fleet import ReplicaState
from pilothouse.model.ids import DeploymentName, FleetName, ModelName, ReplicaId
from pilothouse.model.status import FleetStatus, ReplicaStatus, WorkerStatus

READY, FAILED, LOADING = ReplicaState.READY, ReplicaState.FAILED, ReplicaState.LOADING


def fleet(**models: tuple[ReplicaState, ...]) -> FleetStatus:
    return FleetStatus(
        fleet=FleetName("default"),
        version="1",
        gateway="http://127.0.0.1:8080",
        admin="http://127.0.0.1:8081",
        fleet_file=None,
        ready=False,
        snapshot_version=1,
        workers=(WorkerStatus(index=0, pid=1, snapshot_version=1),),
        replicas=tuple(
            ReplicaStatus(
                id=ReplicaId(f"{model}-{index}"),
                model=ModelName(model),
                deployment=DeploymentName(model),
                engine="fake",
                state=state,
            )
            for model, states in models.items()
            for index, state in enumerate(states)
        ),
    )


@pytest.mark.parametrize(
    ("status", "failing"),
    [
        (fleet(), []),
        (fleet(m=(READY,)), []),
        (fleet(m=(FAILED, READY)), []),
        (fleet(m=(FAILED, LOADING)), ["model/m"]),
        (fleet(b=(LOADING,), a=(READY,), c=(FAILED,)), ["model/b", "model/c"]),
        (msgspec.structs.replace(fleet(m=(READY,)), workers=()), ["workers"]),
    ],
)
def test_one_ready_replica_for_each_model_and_a_worker(status: FleetStatus, failing: list[str]) -> None:
    assert [check.name for check in checks(status) if not check.ok] == failing


def test_the_listing_ends_in_a_verdict() -> None:
    assert render(checks(fleet(b=(LOADING, FAILED), a=(READY,)))).splitlines() == [
        "[+]workers ok",
        "[+]model/a ok",
        "[-]model/b failed: no replica is Ready (Failed, Loading)",
        "readyz check failed",
    ]
