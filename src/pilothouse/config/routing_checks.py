"""Names in a model's `routing` that must be those of its arms, deployments or engines."""

from collections.abc import Iterator
from typing import Any

from pilothouse.config.deployment_names import deployment_name
from pilothouse.config.problems import Problem, SpecPath


def routing_checks(tree: dict[str, Any]) -> Iterator[Problem]:
    """What is wrong in every model's routing. The tree may have any shape."""
    models = tree.get("models")
    for model, entry in models.items() if isinstance(models, dict) else ():
        routing = entry.get("routing") if isinstance(entry, dict) else None
        if isinstance(routing, dict):
            yield from _model(model, entry, routing, ("models", model, "routing"))


def _model(model: str, entry: dict[str, Any], routing: dict[str, Any], path: SpecPath) -> Iterator[Problem]:
    engines, names = _known(model, entry)
    arms = [(index, arm) for index, arm in enumerate(_list(routing.get("arms"))) if isinstance(arm, dict)]
    seen: set[str] = set()
    for index, arm in arms:
        name = arm.get("name")
        if name in seen:
            yield Problem(path=(*path, "arms", index, "name"), message=f"there is an arm called {name!r} already")
        seen.add(str(name))
        for place, deployment in enumerate(_list(arm.get("deployments"))):
            if deployment not in names:
                message = f"{model} has no deployment {deployment!r}; it has {', '.join(sorted(names))}"
                yield Problem(path=(*path, "arms", index, "deployments", place), message=message)
    if arms and not any(arm.get("weight") for _, arm in arms):
        yield Problem(path=(*path, "arms"), message="one arm at least needs a weight")
    for tenant, arm in _mapping(routing.get("pins")).items():
        if arm not in seen:
            yield Problem(path=(*path, "pins", tenant), message=f"there is no arm {arm!r}")
    for workload, row in _mapping(routing.get("workloads")).items():
        for field in ("prefer", "never"):
            for place, name in enumerate(_list(_mapping(row).get(field))):
                if name not in names | engines:
                    message = (
                        f"{model} has no deployment or engine {name!r}; it has {', '.join(sorted(names | engines))}"
                    )
                    yield Problem(path=(*path, "workloads", workload, field, place), message=message)


def _known(model: str, entry: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Engines and names of the model's deployments."""
    engines, names = set(), set()
    for deployment in _list(entry.get("deployments")):
        engine = _mapping(deployment).get("engine")
        engine = engine.get("name") if isinstance(engine, dict) else engine
        engines.add(str(engine))
        names.add(str(_mapping(deployment).get("name") or deployment_name(model, str(engine))))
    return engines, names


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}
