"""What no value of a fleet file shows alone: names that clash, addresses that clash, references in the wrong place.

It looks at the tree as it was read, whether or not the schema agrees with it, so that one run tells of everything.
"""

from collections.abc import Iterator
from typing import Any

from pilothouse.config.addresses import parse_listen
from pilothouse.config.deployment_names import deployment_name
from pilothouse.config.problems import Origins, Problem, SpecPath, nearest_name
from pilothouse.config.routing_checks import routing_checks
from pilothouse.config.schema import (
    DEFAULT_CONTROLLER_LISTEN,
    DEFAULT_GATEWAY_LISTEN,
    ModelSection,
    WeightsSection,
)
from pilothouse.config.secret_references import LOOKS_LIKE_REFERENCE
from pilothouse.config.sources import HubSource, parse_source

_EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})
_SECRET_NAMES = "upstream.api_key, gateway.shared_limits.redis, controller.database and filters.NAME.hash_key"
_SECRET_KEYS = frozenset({"api_key", "redis", "database", "hash_key"})


def cross_check(tree: dict[str, Any], origins: Origins) -> list[Problem]:
    """Every such problem. The tree may have any shape."""
    named = [*_deployment_names(tree, origins), *routing_checks(tree), *_waivers(tree)]
    return [*named, *_weights(tree), *_listen(tree), *_references(tree, ())]


def _deployments(tree: dict[str, Any]) -> Iterator[tuple[str, SpecPath, dict[str, Any]]]:
    """(model, path, deployment) of all that are mappings, short forms widened."""
    models = tree.get("models")
    for model, entry in models.items() if isinstance(models, dict) else ():
        widened = ModelSection.widen(entry) if isinstance(entry, str) else entry
        listed = widened.get("deployments") if isinstance(widened, dict) else None
        for index, deployment in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(deployment, dict):
                yield model, ("models", model, "deployments", index), deployment


def _deployment_names(tree: dict[str, Any], origins: Origins) -> Iterator[Problem]:
    first: dict[str, SpecPath] = {}
    for model, path, deployment in _deployments(tree):
        engine = deployment.get("engine")
        engine = engine.get("name") if isinstance(engine, dict) else engine
        name = deployment.get("name")
        if name is None and isinstance(engine, str):
            name = deployment_name(model, engine)
        if not isinstance(name, str):
            continue
        if name in first:
            message = f"a deployment called {name!r} is already at {origins.place(first[name])}: give each its own name"
            yield Problem(path=(*path, "name"), message=message)
        first.setdefault(name, path)


def _waivers(tree: dict[str, Any]) -> Iterator[Problem]:
    """Waivers for deployments that are not there."""
    names = {
        str(deployment.get("name") or deployment_name(str(model), _engine_name(deployment)))
        for model, _, deployment in _deployments(tree)
    }
    posture = tree.get("posture")
    listed = posture.get("waivers") if isinstance(posture, dict) else None
    for index, waiver in enumerate(listed if isinstance(listed, list) else ()):
        deployments = waiver.get("deployments") if isinstance(waiver, dict) else None
        for place, name in enumerate(deployments if isinstance(deployments, list) else ()):
            if isinstance(name, str) and name not in names:
                path = ("posture", "waivers", index, "deployments", place)
                message = f"there is no deployment {name!r}"
                yield Problem(path=path, message=message, suggestion=nearest_name(name, names))


def _engine_name(deployment: dict[str, Any]) -> str:
    engine = deployment.get("engine")
    return str(engine.get("name") if isinstance(engine, dict) else engine)


def _weights(tree: dict[str, Any]) -> Iterator[Problem]:
    for _, path, deployment in _deployments(tree):
        weights = deployment.get("weights")
        weights = WeightsSection.widen(weights) if isinstance(weights, str) else weights
        if not isinstance(weights, dict) or not isinstance(weights.get("source"), str):
            continue
        try:
            source = parse_source(weights["source"])
        except ValueError:
            continue
        if isinstance(source, HubSource) and source.path is None and weights.get("sha256") is not None:
            message = "a whole repository has no single sha256: name one file of it, or pin a commit as the revision"
            yield Problem(path=(*path, "weights", "sha256"), message=message)


def _listen(tree: dict[str, Any]) -> Iterator[Problem]:
    try:
        gateway = parse_listen(_listen_text(tree, "gateway", DEFAULT_GATEWAY_LISTEN))
        controller = parse_listen(_listen_text(tree, "controller", DEFAULT_CONTROLLER_LISTEN))
    except ValueError:
        return
    same_host = gateway.host == controller.host or {gateway.host, controller.host} & _EVERY_ADDRESS
    if gateway.port and gateway.port == controller.port and same_host:
        yield Problem(path=("controller", "listen"), message=f"gateway.listen has port {gateway.port} already")


def _listen_text(tree: dict[str, Any], section: str, default: str) -> str:
    found = tree.get(section)
    text = found.get("listen", default) if isinstance(found, dict) else default
    return text if isinstance(text, str) else ""


def _references(value: Any, path: SpecPath) -> Iterator[Problem]:
    """Texts that look like a reference to a secret where none is resolved."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _references(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _references(each, (*path, index))
    elif isinstance(value, str) and path and path[-1] not in _SECRET_KEYS and LOOKS_LIKE_REFERENCE.search(value):
        yield Problem(path=path, message=f"${{env:...}} and ${{file:...}} are for secrets alone: {_SECRET_NAMES}")
