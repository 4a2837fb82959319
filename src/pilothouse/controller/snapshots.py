"""What the workers are told of the fleet: the fleet file and the replicas as one immutable snapshot."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from pilothouse.controller.replica import Replica
from pilothouse.engines.registry import driver
from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import Capacity, DeploymentView, FleetSnapshot, ModelView, ReplicaState
from pilothouse.model.ids import FleetName, ModelName, ReplicaId
from pilothouse.model.posture import Outcome
from pilothouse.model.requests import Route
from pilothouse.model.spec import DeploymentSpec, FleetSpec, ModelSpec, Timeouts
from pilothouse.policy.advisories.verdicts import Verdict
from pilothouse.store.private_files import read_private, replace_private

_logger = logging.getLogger(__name__)


def build(
    spec: FleetSpec,
    replicas: Iterable[Replica],
    created: Mapping[ModelName, int],
    posture: Callable[[DeploymentSpec], Verdict | None],
    *,
    version: int,
) -> FleetSnapshot:
    """The snapshot: models and deployments in the fleet file's order, replicas in that of their indices.

    While a deployment is being replaced, its old replicas are a deployment view of their own, behind the current ones,
    with what their engine was started with. `created` is when each model was first seen; `posture` has the verdicts.
    """
    by_digest: dict[str, list[Replica]] = {}
    for replica in sorted(replicas, key=lambda replica: (replica.deployment.name, replica.index)):
        if replica.state is not ReplicaState.STOPPED:
            by_digest.setdefault(replica.digest, []).append(replica)
    pinned = {deployment.digest() for model in spec.models for deployment in model.deployments}
    stale = [group for digest, group in by_digest.items() if digest not in pinned]
    return FleetSnapshot(
        fleet=spec.name,
        version=version,
        filters=spec.filters,
        models=tuple(
            ModelView(
                name=model.name,
                created=created[model.name],
                deployments=(
                    *(
                        _view(deployment, by_digest.get(deployment.digest(), ()), posture(deployment))
                        for deployment in model.deployments
                    ),
                    *(
                        _view(group[0].deployment, group, posture(group[0].deployment))
                        for group in stale
                        if group[0].deployment.model == model.name
                    ),
                ),
                timeouts=_timeouts(spec, model),
                price=model.price,
            )
            for model in spec.models
        ),
    )


def _timeouts(spec: FleetSpec, model: ModelSpec) -> dict[Route, Timeouts]:
    """A model's rules by route; none where nobody has said anything."""
    rules = {route: model.timeouts.over(spec.gateway.timeouts.get(route, Timeouts())) for route in Route}
    return {route: rule for route, rule in rules.items() if rule != Timeouts()}


def _view(deployment: DeploymentSpec, replicas: Iterable[Replica], verdict: Verdict | None) -> DeploymentView:
    engine = driver(deployment.engine.name)
    return DeploymentView(
        name=deployment.name,
        engine=engine.name,
        routes=engine.routes(deployment),
        served_model=engine.served_model(deployment),
        reserved_headers=engine.reserved_headers,
        reserved_fields=engine.reserved_fields,
        reports_stream_usage=engine.reports_stream_usage,
        progress_field=engine.progress_field,
        capacity=_capacity(deployment),
        salt_field=engine.salt_field,
        priority_field=engine.priority_field,
        priorities=dict(engine.priorities(deployment)),
        quarantined=verdict is not None and verdict.outcome is Outcome.DENIED,
        without=() if verdict is None else verdict.without,
        replicas=tuple(replica.view() for replica in replicas),
    )


def _capacity(deployment: DeploymentSpec) -> Capacity | None:
    told = deployment.capacity
    if told is not None:
        return Capacity(slots=told.slots, tokens=told.tokens)
    return driver(deployment.engine.name).capacity(deployment)


def ready_replicas(snapshot: FleetSnapshot) -> set[ReplicaId]:
    """The replicas that take turns by this snapshot."""
    return {
        view.id
        for model in snapshot.models
        for deployment in model.deployments
        for view in deployment.replicas
        if view.state is ReplicaState.READY
    }


def load(path: Path, fleet: FleetName) -> FleetSnapshot | None:
    """What was published last, by this controller or an earlier one; `None` if nothing was.

    A damaged file counts as an empty snapshot. Its version is the time in seconds, which is above any that was
    published: workers tell new from old by it, and it grows by far less than one a second.

    Raises PilothouseError state_unreadable.
    """
    content = read_private(path)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=FleetSnapshot)
    except msgspec.MsgspecError as error:
        _logger.error("the last snapshot is damaged; starting a new one", extra={"reason": str(error)})
        return FleetSnapshot(fleet=fleet, version=int(time.time()))


def save(path: Path, snapshot: FleetSnapshot) -> None:
    """Write the file from which a worker starts. A disk that is full is logged: those that listen still hear."""
    try:
        replace_private(path, msgspec.json.encode(snapshot))
    except PilothouseError as error:
        _logger.error("the snapshot could not be written", extra={"reason": error.message})
