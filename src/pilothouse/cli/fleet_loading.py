"""A fleet file, checked by the rules of the file and by those of the engines it names."""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path

from pilothouse.cli.output import CommandError
from pilothouse.config import fleet_file
from pilothouse.config.fleet_file import LoadedFleet
from pilothouse.config.paths import fleet_paths
from pilothouse.config.problems import Problem, SpecPath, invalid
from pilothouse.engines import registry
from pilothouse.engines.subjects import subjects
from pilothouse.model.posture import Outcome
from pilothouse.policy.advisories.verdicts import Verdict
from pilothouse.policy.advisories.wording import denial
from pilothouse.store.advisories.knowledge import Knowledge, gather


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


def knowledge_of(loaded: LoadedFleet, env: Mapping[str, str]) -> Knowledge:
    """What this host knows of advisories, with the fleet's own policy and waivers.

    Raises:
        PilothouseError: state_unreadable.
    """
    return gather(fleet_paths(loaded.spec.name, env).advisories_dir, loaded.spec.posture)


def verdicts_on(loaded: LoadedFleet, env: Mapping[str, str]) -> list[Verdict]:
    """What advisories allow each deployment to do, by what this host knows; none where none can apply.

    Raises:
        PilothouseError: state_unreadable.
    """
    return knowledge_of(loaded, env).verdicts(subjects(loaded.spec), dt.datetime.now(dt.UTC).date())


def require_allowed(loaded: LoadedFleet, verdicts: Sequence[Verdict]) -> None:
    """See that no deployment is denied.

    Raises:
        PilothouseError: posture_denied, with every one that is, its line, and what would clear it.
    """
    denied = {each.deployment: each for each in verdicts if each.outcome is Outcome.DENIED}
    places: dict[str, SpecPath] = {
        deployment.name: ("models", model.name, "deployments", index)
        for model in loaded.spec.models
        for index, deployment in enumerate(model.deployments)
    }
    problems = [Problem(path=places[name], message=denial(each)) for name, each in denied.items()]
    if problems:
        raise invalid(problems, loaded.origins, "posture_denied")
