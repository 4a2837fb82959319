"""What a fleet snapshot means to this worker: models to routes to replicas.

A table is built once per snapshot and swapped by reference. Replicas live on from table to table as long as they
listen on the same endpoint, with their connections and their counts.
"""

from collections.abc import Callable, Mapping

from pilothouse.gateway.filter_sets import FilterSets, ModelFilters
from pilothouse.gateway.meters import Meters, ModelMeters
from pilothouse.gateway.model_queue import ModelQueue
from pilothouse.gateway.upstream import Replica
from pilothouse.model.fleet import Capacity, DeploymentView, FleetSnapshot, ModelView, ReplicaState, ReplicaView
from pilothouse.model.ids import ReplicaId
from pilothouse.model.requests import Route
from pilothouse.model.spec import GatewayLimits, Timeouts
from pilothouse.model.units import seconds


class Candidate:
    """A replica that can serve a route, with what its deployment says about requests."""

    __slots__ = ("deployment", "replica", "reserved_headers", "tells_tenant")

    def __init__(self, replica: Replica, deployment: DeploymentView, reserved_headers: frozenset[bytes]) -> None:
        self.replica = replica
        self.deployment = deployment
        self.reserved_headers = reserved_headers
        self.tells_tenant = deployment.salt_field is not None or deployment.priority_field is not None


class Delays:
    """The time-outs of an exchange. `total` is 0 where there is none."""

    __slots__ = ("connect_s", "first_byte", "idle", "total")

    def __init__(self, rule: Timeouts, limits: GatewayLimits) -> None:
        self.connect_s = rule.connect_s or limits.connect_timeout_s
        self.first_byte = seconds(rule.first_byte_s or limits.first_byte_timeout_s)
        self.idle = seconds(rule.idle_s or limits.stream_idle_timeout_s)
        self.total = seconds(rule.total_s or 0)


class ModelEntry:
    """A public model. `routes` has the candidates of each route that some deployment speaks, ready or not.

    `withholds`: some deployment must not get every request, so that requests have to be looked at. `filters` are those
    that apply to some of its turns, `None` if there are none.
    """

    __slots__ = ("delays", "filters", "meters", "queue", "replica_count", "routes", "view", "withholds")

    def __init__(
        self,
        view: ModelView,
        replicas: Mapping[ReplicaId, Replica],
        meters: ModelMeters,
        limits: GatewayLimits,
        filters: ModelFilters | None,
    ) -> None:
        self.view = view
        self.filters = filters
        self.meters = meters
        self.queue: ModelQueue | None = None
        self.delays = {route: Delays(view.timeouts.get(route, Timeouts()), limits) for route in Route}
        self.withholds = any(deployment.without for deployment in view.deployments)
        self.replica_count = sum(len(deployment.replicas) for deployment in view.deployments)
        self.routes: dict[Route, tuple[Candidate, ...]] = {}
        # One object for all replicas of a deployment: what was made of a client's headers is kept by its identity.
        reserved = {
            deployment.name: frozenset(name.encode() for name in deployment.reserved_headers)
            for deployment in view.deployments
        }
        for route in Route:
            speakers = [deployment for deployment in view.deployments if route in deployment.routes]
            if speakers:
                self.routes[route] = tuple(
                    Candidate(replicas[replica.id], deployment, reserved[deployment.name])
                    for deployment in speakers
                    for replica in deployment.replicas
                    if replica.id in replicas
                )

    @property
    def capacity(self) -> Capacity | None:
        """What all replicas that take turns can have under way; `None` if one does not say."""
        slots = tokens = 0
        for deployment in self.view.deployments:
            if deployment.quarantined:
                continue
            ready = sum(replica.state is ReplicaState.READY for replica in deployment.replicas)
            if ready and deployment.capacity is None:
                return None
            if deployment.capacity is not None:
                slots += ready * deployment.capacity.slots
                tokens += ready * deployment.capacity.tokens
        return Capacity(slots=slots, tokens=tokens) if slots else None

    @property
    def ready_count(self) -> int:
        """Replicas that take new turns."""
        return len({candidate.replica.id for candidates in self.routes.values() for candidate in candidates})


class RoutingTable:
    """One snapshot, ready for look-ups by name."""

    def __init__(
        self,
        snapshot: FleetSnapshot,
        replicas: dict[ReplicaId, Replica],
        meters: Meters,
        limits: GatewayLimits,
        filters: FilterSets,
    ) -> None:
        self.snapshot = snapshot
        self.replicas = replicas
        self.filters = filters
        self.models = {
            str(model.name): ModelEntry(
                model, replicas, meters.model(model.name), limits, filters.of_model(str(model.name))
            )
            for model in snapshot.models
        }


def build(
    snapshot: FleetSnapshot,
    previous: RoutingTable | None,
    make_replica: Callable[[ReplicaView, ModelView], Replica],
    meters: Meters,
    limits: GatewayLimits,
    filters: FilterSets,
) -> tuple[RoutingTable, list[Replica]]:
    """The table of `snapshot`, and the replicas of `previous` that are in it no more.

    Only Ready replicas are candidates, and none of a quarantined deployment; one that is no candidate any more finishes
    the exchanges it has through their own reference.
    """
    known = previous.replicas if previous is not None else {}
    replicas: dict[ReplicaId, Replica] = {}
    for model in snapshot.models:
        for deployment in model.deployments:
            for view in () if deployment.quarantined else deployment.replicas:
                if view.state is not ReplicaState.READY or view.endpoint is None:
                    continue
                old = known.get(view.id)
                same = old is not None and old.endpoint == view.endpoint
                replicas[view.id] = old if old is not None and same else make_replica(view, model)
    retired = [replica for id_, replica in known.items() if replicas.get(id_) is not replica]
    return RoutingTable(snapshot, replicas, meters, limits, filters), retired
