"""Engines by name, and the check of a whole fleet against them."""

import msgspec

from pilothouse.config.problems import Problem, SpecPath, nearest_name
from pilothouse.engines.base import Driver
from pilothouse.engines.fake import FakeDriver
from pilothouse.engines.llamacpp import LlamaCppDriver
from pilothouse.engines.openai import OpenAIDriver
from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import FleetSpec

_DRIVERS: dict[str, Driver] = {each.name: each for each in (LlamaCppDriver(), OpenAIDriver(), FakeDriver())}


def names() -> tuple[str, ...]:
    """The engines there are."""
    return tuple(_DRIVERS)


def driver(name: str) -> Driver:
    """The driver of that name.

    Raises:
        PilothouseError: config_invalid, with near names, when there is none.
    """
    found = _DRIVERS.get(name)
    if found is None:
        problem = _unknown(name)
        meant = f" (did you mean {problem.suggestion}?)" if problem.suggestion else ""
        raise PilothouseError("config_invalid", f"{problem.message}{meant}")
    return found


def check_fleet(spec: FleetSpec) -> list[Problem]:
    """Every problem that the engines have with the fleet, by paths in the fleet file's long form."""
    found: list[Problem] = []
    for model in spec.models:
        for index, deployment in enumerate(model.deployments):
            known = _DRIVERS.get(deployment.engine.name)
            problems = known.check(deployment) if known else [_unknown(deployment.engine.name)]
            place: SpecPath = ("models", model.name, "deployments", index)
            found += [msgspec.structs.replace(problem, path=place + problem.path) for problem in problems]
    return found


def _unknown(name: str) -> Problem:
    return Problem(
        path=("engine", "name"),
        message=f"there is no engine {name!r}; the engines are {', '.join(_DRIVERS)}",
        suggestion=nearest_name(name, _DRIVERS),
    )
