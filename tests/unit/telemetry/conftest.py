import os

import pytest

from pilothouse.model.fleet import ReplicaState
from pilothouse.model.ids import DeploymentName, FleetName, ModelName, ReplicaId
from pilothouse.model.status import FleetStatus, ReplicaStatus, WorkerStatus


@pytest.fixture
def status() -> FleetStatus:
    """One worker, which is this process, and two replicas: one serves, one is loading and tells nothing yet."""
    return FleetStatus(
        fleet=FleetName("default"),
        version="1.2.3",
        gateway="http://127.0.0.1:8080",
        admin="http://127.0.0.1:8081",
        fleet_file=None,
        ready=False,
        snapshot_version=7,
        workers=(WorkerStatus(index=0, pid=os.getpid(), snapshot_version=7),),
        replicas=(
            ReplicaStatus(
                id=ReplicaId("d-0"),
                model=ModelName("m"),
                deployment=DeploymentName("d"),
                engine="fake",
                state=ReplicaState.READY,
                restarts=2,
                requests_running=3.0,
                requests_waiting=0.0,
                kv_usage_ratio=0.25,
            ),
            ReplicaStatus(
                id=ReplicaId("d-1"),
                model=ModelName("m"),
                deployment=DeploymentName("d"),
                engine="fake",
                state=ReplicaState.LOADING,
            ),
        ),
    )
