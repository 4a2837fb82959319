"""The fleet as an operator sees it, out of what the controller holds and the workers' board."""

from collections.abc import Collection

import pilothouse
from pilothouse.controller.drain_watch import in_flight
from pilothouse.controller.publisher import JoinedWorker
from pilothouse.controller.replica import Replica
from pilothouse.model.fleet import ReplicaState
from pilothouse.model.posture import Outcome
from pilothouse.model.spec import FleetSpec
from pilothouse.model.status import FleetStatus, PostureStatus, WorkerStatus
from pilothouse.telemetry.board import Boards


def fleet_status(
    spec: FleetSpec,
    replicas: Collection[Replica],
    *,
    workers: Collection[JoinedWorker],
    boards: Boards,
    snapshot_version: int,
    fleet_file: str | None,
    postures: tuple[PostureStatus, ...],
) -> FleetStatus:
    """The status. Replicas are in the fleet file's order, and those it does not want any more come last."""
    deployments = [deployment for model in spec.models for deployment in model.deployments]
    order = {deployment.name: place for place, deployment in enumerate(deployments)}
    versions = {board.pid: board.snapshot_version for board in boards.boards}

    def place(replica: Replica) -> tuple[int, str, int]:
        name = replica.deployment.name
        return order.get(name, len(order)), name, replica.index

    def ready(digest: str) -> int:
        return sum(each.digest == digest and each.state is ReplicaState.READY for each in replicas)

    denied = {each.deployment for each in postures if each.outcome is Outcome.DENIED}
    return FleetStatus(
        fleet=spec.name,
        version=pilothouse.__version__,
        gateway=str(spec.gateway.listen),
        admin=str(spec.controller.listen),
        fleet_file=fleet_file,
        ready=all(ready(each.digest()) >= each.replicas and each.name not in denied for each in deployments),
        snapshot_version=snapshot_version,
        workers=tuple(
            WorkerStatus(index=worker.index, pid=worker.pid, snapshot_version=versions.get(worker.pid, 0))
            for worker in workers
        ),
        replicas=tuple(replica.status(in_flight(boards, replica.id)) for replica in sorted(replicas, key=place)),
        postures=postures,
    )
