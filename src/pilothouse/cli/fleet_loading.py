"""A fleet file, checked by the rules of the file and by those of the engines it names."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pilothouse.cli.output import CommandError
from pilothouse.config import fleet_file
from pilothouse.config.fleet_file import LoadedFleet
from pilothouse.engines import registry
from pilothouse.model.errors import PilothouseError


def overrides_of(settings: Sequence[str]) -> dict[str, str]:
    """`--set KEY=VALUE`, as a mapping.

    Raises:
        CommandError: one has no `=`.
    """
    found = {}
    for each in settings:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise CommandError(f"--set {each}: expected KEY=VALUE", hint="for example --set gateway.workers=2")
        found[key] = value
    return found


def load_checked(path: Path | None, settings: Sequence[str], env: Mapping[str, str]) -> LoadedFleet:
    """The fleet file at `path`, or what stands for it.

    Raises:
        PilothouseError: config_not_found, secret_not_found, or config_invalid with every problem and its line.
        CommandError: a setting is not KEY=VALUE.
    """
    loaded = fleet_file.load(path, overrides=overrides_of(settings), env=env)
    problems = []
    for where, problem in registry.check_fleet(loaded.spec):
        meant = f" (did you mean {problem.suggestion}?)" if problem.suggestion else ""
        dotted = ".".join(str(part) for part in where)
        problems.append(f"{loaded.locate(where)}: {dotted}: {problem.message}{meant}")
    if problems:
        raise PilothouseError("config_invalid", "\n".join(problems))
    return loaded
