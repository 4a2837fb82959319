"""What differs between two fleets, in lines for people. Secrets are said to differ, never shown."""

from collections.abc import Iterator
from typing import Any

import msgspec

from pilothouse.model.spec import DeploymentSpec, FleetSpec

_NEXT_START = " (takes effect when the fleet is started again)"


def changes(old: FleetSpec, new: FleetSpec) -> tuple[str, ...]:
    """One line for each change; empty when there is none.

    `+` and `-` are deployments that come and go, `~` is what differs in one that stays, or in a setting. What only a
    new start of the fleet can change, the lines say: its name, the listeners, the workers and their limits.
    """
    return (*_deployment_changes(old, new), *_setting_changes(old, new))


def _deployment_changes(old: FleetSpec, new: FleetSpec) -> Iterator[str]:
    before, after = _deployments(old), _deployments(new)
    for name, deployment in before.items():
        if name not in after:
            yield f"- deployment {name} of model {deployment.model}"
    for name, deployment in after.items():
        if name not in before:
            yield (
                f"+ deployment {name} of model {deployment.model}: "
                f"{deployment.engine.name}, {_count(deployment.replicas)}"
            )
        else:
            yield from (f"~ {name}: {line}" for line in _differences(_flat(before[name]), _flat(deployment)))


def _setting_changes(old: FleetSpec, new: FleetSpec) -> Iterator[str]:
    before, after = ({each.name: _Secret(_encoded(each).decode()) for each in spec.filters} for spec in (old, new))
    yield from (f"~ filters.{line}" for line in _differences(before, after))
    yield from (f"~ {line}{_NEXT_START}" for line in _differences(_flat_settings(old), _flat_settings(new)))


def _deployments(spec: FleetSpec) -> dict[str, DeploymentSpec]:
    return {each.name: each for model in spec.models for each in model.deployments}


def _differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        # By their encoded form, in which true is not 1.
        if _encoded(before) != _encoded(after):
            is_secret = isinstance(before, _Secret) or isinstance(after, _Secret)
            yield f"{key} changed" if is_secret else f"{key} {_shown(before)} -> {_shown(after)}"


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


class _Secret(msgspec.Struct, frozen=True):
    value: str


def _flat(deployment: DeploymentSpec) -> dict[str, Any]:
    flat: dict[str, Any] = {
        "model": deployment.model,
        "engine": deployment.engine.name,
        "engine.version": deployment.engine.version,
        "replicas": deployment.replicas,
    }
    flat |= {f"engine.args.{name}": value for name, value in deployment.engine.args.items()}
    if deployment.weights is not None:
        flat |= {"weights": deployment.weights.source, "weights.sha256": deployment.weights.sha256}
    if deployment.upstream is not None:
        key = deployment.upstream.api_key
        flat |= {
            "upstream.url": deployment.upstream.url,
            "upstream.model": deployment.upstream.model,
            "upstream.api_key": None if key is None else _Secret(key),
        }
    return flat


def _flat_settings(spec: FleetSpec) -> dict[str, Any]:
    return {
        "fleet": spec.name,
        "gateway.listen": str(spec.gateway.listen),
        "gateway.workers": spec.gateway.workers,
        **{f"gateway.limits.{name}": value for name, value in msgspec.structs.asdict(spec.gateway.limits).items()},
        "controller.listen": str(spec.controller.listen),
    }


def _shown(value: Any) -> str:
    if value is None:
        return "(not set)"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _count(replicas: int) -> str:
    return f"{replicas} replica{'' if replicas == 1 else 's'}"
