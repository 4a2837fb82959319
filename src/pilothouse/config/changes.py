"""What differs between two fleets, in lines for people. Secrets are said to differ, never shown."""

from collections.abc import Iterator
from typing import Any

import msgspec

from pilothouse.model.spec import DeploymentSpec, FleetSpec, Timeouts

_NEXT_START = " (takes effect when the fleet is started again)"
_OF_THE_WORKERS = (
    *(f"gateway.{name}" for name in ("workers", "limits", "tls", "cors", "access_log", "traces")),
    *("gateway.shared_limits", "gateway.queue", "auth"),
)
_RESTART = " (takes effect with `pilothouse restart`)"


def changes(old: FleetSpec, new: FleetSpec) -> tuple[str, ...]:
    """One line for each change; empty when there is none.

    `+` and `-` are deployments that come and go, `~` is what differs in one that stays, or in a setting. What a reload
    alone does not change, the lines say: workers and their limits need a restart of the workers, the fleet's name and
    the listeners a new start of the fleet.
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
    for line in _differences(_flat_settings(old), _flat_settings(new)):
        yield f"~ {line}{_RESTART if line.startswith(_OF_THE_WORKERS) else _NEXT_START}"
    yield from (f"~ {line}" for line in _differences(_flat_timeouts(old), _flat_timeouts(new)))
    yield from (f"~ {line}" for line in _differences(_flat_prices(old), _flat_prices(new)))
    yield from (f"~ {line}" for line in _differences(_flat_posture(old), _flat_posture(new)))


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
        "capacity": None if deployment.capacity is None else msgspec.to_builtins(deployment.capacity),
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
    redis = spec.gateway.shared_limits.redis
    return {
        "fleet": spec.name,
        "gateway.listen": str(spec.gateway.listen),
        "gateway.workers": spec.gateway.workers,
        "gateway.tls": None if spec.gateway.tls is None else msgspec.to_builtins(spec.gateway.tls),
        "gateway.access_log.sample": spec.gateway.access_log_sample,
        "gateway.traces": None if spec.gateway.traces is None else msgspec.to_builtins(spec.gateway.traces),
        "gateway.cors.origins": list(spec.gateway.cors_origins) or None,
        "gateway.shared_limits.redis": None if redis is None else _Secret(redis),
        "gateway.shared_limits.open_share": spec.gateway.shared_limits.open_share,
        **{f"gateway.queue.{name}": value for name, value in msgspec.structs.asdict(spec.gateway.queue).items()},
        **{f"gateway.limits.{name}": value for name, value in msgspec.structs.asdict(spec.gateway.limits).items()},
        "controller.listen": str(spec.controller.listen),
        "controller.database": None if spec.controller.database is None else _Secret(spec.controller.database),
        **{f"auth.jwt.issuers[{each.issuer}]": msgspec.to_builtins(each) for each in spec.token_issuers},
    }


def _flat_timeouts(spec: FleetSpec) -> dict[str, Any]:
    rules = {f"gateway.timeouts.{route}": rule for route, rule in spec.gateway.timeouts.items()}
    rules |= {f"models.{model.name}.timeouts": model.timeouts for model in spec.models}
    return {f"{path}.{name}": value for path, rule in rules.items() for name, value in _set(rule).items()}


def _flat_prices(spec: FleetSpec) -> dict[str, Any]:
    return {
        f"models.{model.name}.price": None if model.price is None else msgspec.to_builtins(model.price)
        for model in spec.models
    }


def _flat_posture(spec: FleetSpec) -> dict[str, Any]:
    return {f"posture.{name}": value for name, value in msgspec.to_builtins(spec.posture).items()}


def _set(rule: Timeouts) -> dict[str, float]:
    return {name: value for name, value in msgspec.structs.asdict(rule).items() if value is not None}


def _shown(value: Any) -> str:
    if value is None:
        return "(not set)"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _count(replicas: int) -> str:
    return f"{replicas} replica{'' if replicas == 1 else 's'}"
