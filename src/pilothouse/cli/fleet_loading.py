"""A fleet file, checked by the rules of the file and by those of the engines it names."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pilothouse.cli.output import CommandError
from pilothouse.config import fleet_file
from pilothouse.config.fleet_file import LoadedFleet
from pilothouse.config.problems import invalid
from pilothouse.engines import registry


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


def load_checked(path: Path | None, overrides: Mapping[str, str], env: Mapping[str, str]) -> LoadedFleet:
    """The fleet file at `path`, or what stands for it.

    Raises:
        PilothouseError: config_not_found, secret_not_found, or config_invalid with every problem and its line.
    """
    loaded = fleet_file.load(path, overrides=overrides, env=env)
    problems = registry.check_fleet(loaded.spec)
    if problems:
        raise invalid(problems, loaded.origins)
    return loaded
