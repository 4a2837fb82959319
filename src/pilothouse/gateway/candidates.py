"""Which replicas may get a request, as things are now."""

import msgspec

from pilothouse.gateway.routing_table import Candidate, ModelEntry
from pilothouse.model.errors import Refusal
from pilothouse.model.requests import Route
from pilothouse.wire.inference_body import InferenceBody
from pilothouse.wire.request_features import features_used


def candidates_for(entry: ModelEntry, body: InferenceBody, route: Route) -> tuple[Candidate, ...] | Refusal:
    """The replicas that may get a request, one at least, or why there is none."""
    candidates = entry.routes.get(route)
    if not candidates:
        return _unservable(entry, body, route)
    return _permitted(entry, candidates, body, route) if entry.withholds else candidates


def _permitted(
    entry: ModelEntry, candidates: tuple[Candidate, ...], body: InferenceBody, route: Route
) -> tuple[Candidate, ...] | Refusal:
    """The candidates whose deployment may get the features that a request uses; at least one."""
    try:
        used = features_used(body.fields)
    except (msgspec.DecodeError, RecursionError) as error:
        return Refusal(code="invalid_json", message=f"The body could not be read: {error}.")
    found = tuple(each for each in candidates if used.isdisjoint(each.deployment.without))
    if found:
        return found
    if any(route in each.routes and used.isdisjoint(each.without) for each in entry.view.deployments):
        return _unservable(entry, body, route)  # another deployment may, once it is ready
    withheld = sorted(used.intersection(name for each in candidates for name in each.deployment.without))
    message = f"The model `{body.model}` does not take requests with {', '.join(withheld)} at present."
    return Refusal(code="feature_withheld", message=message)


def _unservable(entry: ModelEntry, body: InferenceBody, route: Route) -> Refusal:
    """Why a model of the fleet cannot serve a request now."""
    if route not in entry.routes:
        spoken = ", ".join(sorted(entry.routes))
        message = f"The model `{body.model}` does not serve {route.value}; it serves {spoken or 'nothing'}."
        return Refusal(code="route_not_supported", message=message)
    message = f"No replica of the model `{body.model}` is ready to take requests now."
    return Refusal(code="no_ready_replica", message=message)
