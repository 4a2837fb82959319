"""A replica as the controller holds it: the machine that decides, and what belongs to its present process."""

import hashlib
import time
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from pilothouse.engines.base import Driver, EngineGauge
from pilothouse.model.fleet import Endpoint, ReplicaState, ReplicaView
from pilothouse.model.ids import FleetName, ReplicaId
from pilothouse.model.spec import DeploymentSpec
from pilothouse.model.status import ReplicaStatus
from pilothouse.model.units import SECOND, WallNs
from pilothouse.placement.local import Placement
from pilothouse.placement.weights import ProgressSink
from pilothouse.policy.reconciliation import PresentReplica
from pilothouse.policy.replica_lifecycle import ReplicaLifecycle

NO_GAUGES: Mapping[EngineGauge, float] = MappingProxyType({})


class Replica:
    """One replica for as long as its machine lives. `endpoint` is whole, with the secret that events leave out."""

    def __init__(self, deployment: DeploymentSpec, driver: Driver, index: int, fleet: FleetName) -> None:
        self.deployment = deployment
        self.driver = driver
        self.index = index
        self.id = replica_id(deployment, index)
        self.digest = deployment.digest()
        self.machine = ReplicaLifecycle(self.id)
        self.placement: Placement | None = None
        self.endpoint: Endpoint | None = None
        self.started_at: WallNs | None = None
        self.detail = ""
        self.log_tail: tuple[str, ...] = ()
        self.gauges = NO_GAUGES
        # A client may see that two answers came from one replica, not what the operator calls it.
        self._alias = hashlib.sha256(f"{fleet}/{self.id}".encode()).hexdigest()[:8]

    @property
    def state(self) -> ReplicaState:
        """Where it is in its life."""
        return self.machine.state

    def present(self, pinned: DeploymentSpec | None) -> PresentReplica:
        """What reconciliation needs to know, where the fleet file now pins `pinned`."""
        current = pinned is not None and pinned.digest() == self.digest
        return PresentReplica(id=self.id, index=self.index, current=current, state=self.state)

    def view(self) -> ReplicaView:
        """What the workers need to know."""
        endpoint = self.endpoint if self.state in (ReplicaState.READY, ReplicaState.DRAINING) else None
        return ReplicaView(
            id=self.id, alias=self._alias, deployment=self.deployment.name, state=self.state, endpoint=endpoint
        )

    def status(self, in_flight: int) -> ReplicaStatus:
        """What an operator sees."""
        endpoint = self.endpoint
        return ReplicaStatus(
            id=self.id,
            model=self.deployment.model,
            deployment=self.deployment.name,
            engine=self.driver.name,
            state=self.state,
            detail=self.detail,
            address=None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
            pid=self.machine.pid,
            uptime_s=None if self.started_at is None else (time.time_ns() - self.started_at) / SECOND,
            restarts=self.machine.restarts,
            in_flight=in_flight,
            requests_running=self.gauges.get(EngineGauge.REQUESTS_RUNNING),
            requests_waiting=self.gauges.get(EngineGauge.REQUESTS_WAITING),
            kv_usage_ratio=self.gauges.get(EngineGauge.KV_USAGE_RATIO),
            log_tail=self.log_tail,
        )

    def forget_process(self) -> None:
        """Its process is gone, and with it where it listened."""
        self.placement = self.endpoint = self.started_at = None
        self.gauges = NO_GAUGES


class PlacingProgress:
    """Shows in a replica's detail how far its weights are, and tells `next_sink`. Told from any thread."""

    def __init__(self, replica: Replica, next_sink: ProgressSink) -> None:
        self._replica = replica
        self._next = next_sink

    def update(self, phase: str, done: int, total: int | None) -> None:
        """`done` of `total` bytes of a phase; `total` is `None` while unknown."""
        if total is None:
            far = f"{done / 2**20:,.0f} MiB"
        else:
            far = f"{100 * done // max(1, total)}% of {total / 2**20:,.0f} MiB"
        # The last word may come when the replica is further already: that has a detail of its own.
        if self._replica.state is ReplicaState.PLACING:
            self._replica.detail = f"{phase}: {far}"
        self._next.update(phase, done, total)


def replica_id(deployment: DeploymentSpec, index: int) -> ReplicaId:
    """`<deployment>-<index>`."""
    return ReplicaId(f"{deployment.name}-{index}")


def index_of(replica: ReplicaId, deployment: DeploymentSpec) -> int | None:
    """The index in the id of a replica of this deployment, `None` if it is of another."""
    name, _, index = replica.rpartition("-")
    is_index = index.isascii() and index.isdecimal() and str(int(index)) == index
    return int(index) if name == deployment.name and is_index else None


def without_secret(endpoint: Endpoint) -> Endpoint:
    """The endpoint as events may carry it."""
    return msgspec.structs.replace(endpoint, authorization=None)
