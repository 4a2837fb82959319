"""`pilothouse config ...`: check, show and reload the fleet file."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import json_text, say

_Set = Annotated[tuple[str, ...], Parameter(name="--set", consume_multiple=False)]


def check(file: Path | None = None, /, *, set_: _Set = ()) -> int:
    """Check a fleet file without starting anything.

    $ pilothouse config check
    $ pilothouse config check fleet.yaml --set gateway.workers=2

    Every problem is named with its line. Arguments of engines are checked too, and what advisories allow.

    Args:
        file: The fleet file; ./fleet.yaml, else the built-in fleet, if left out.
        set_: KEY=VALUE to put over the file's own; may be repeated.
    """
    from pilothouse.cli.fleet_loading import load_checked, overrides_of, require_allowed, verdicts_on
    from pilothouse.policy.advisories.wording import headline

    loaded = load_checked(file, overrides_of(set_), os.environ)
    for warning in loaded.warnings:
        say(f"warning: {warning}")
    verdicts = verdicts_on(loaded, os.environ)
    require_allowed(loaded, verdicts)
    for each in verdicts:
        if each.acting or each.notes or each.without:
            say(f"posture of {each.deployment}: {headline(each)}; `pilothouse advisories check` says why")
    replicas = sum(deployment.replicas for model in loaded.spec.models for deployment in model.deployments)
    say(f"{loaded.path or 'the built-in fleet'} is fine: models {len(loaded.spec.models)}, replicas {replicas}")
    return Exit.OK


def schema() -> int:
    """Print the JSON Schema of the fleet file.

    $ pilothouse config schema > fleet.schema.json

    An editor that knows `# yaml-language-server: $schema=fleet.schema.json` as the file's first line checks and
    completes it.
    """
    from pilothouse.config.fleet_file import json_schema

    print(json_text(json_schema()))
    return Exit.OK


def show(file: Path | None = None, /, *, effective: bool = False, set_: _Set = ()) -> int:
    """Print the fleet file.

    $ pilothouse config show
    $ pilothouse config show fleet.yaml --effective

    Args:
        file: The fleet file; ./fleet.yaml, else the built-in fleet, if left out.
        effective: In its long form, with every default and override filled in. Secrets stay references.
        set_: KEY=VALUE to put over the file's own, with --effective; may be repeated.
    """
    from pilothouse.cli.fleet_loading import load_checked, overrides_of
    from pilothouse.config.fleet_file import effective_yaml

    loaded = load_checked(file, overrides_of(set_), os.environ)
    print(effective_yaml(loaded) if effective else loaded.text, end="")
    return Exit.OK


def import_litellm(file: Path, /) -> int:
    """Turn a LiteLLM config.yaml into a fleet file.

    $ pilothouse config import litellm config.yaml > fleet.yaml

    Standard output is the fleet file. Standard error has what could not be brought over, a line each, and commands that
    make tenants with the budgets found.

    Args:
        file: LiteLLM's configuration.
    """
    from pilothouse.config.litellm_import import import_litellm as convert
    from pilothouse.model.errors import PilothouseError

    try:
        text = file.read_text()
    except OSError as error:
        raise PilothouseError("config_not_found", f"{file} cannot be read: {error.strerror}") from error
    imported = convert(text)
    print(imported.fleet_file, end="")
    for line in imported.left_behind:
        say(f"left behind: {line}")
    for command in imported.commands:
        say(f"to be run on the fleet: {command}")
    return Exit.OK


def reload(*, fleet: Annotated[str | None, Parameter(env_var="PILOTHOUSE_FLEET")] = None) -> int:
    """Have the running fleet read its file again.

    $ pilothouse config reload

    A file with a mistake changes nothing. Standard output has one line for each change.

    Args:
        fleet: The fleet, if several are running.
    """
    changes = asyncio.run(_reload(fleet))
    for change in changes:
        print(change)
    if not changes:
        say("nothing has changed")
    return Exit.OK


async def _reload(fleet: str | None) -> tuple[str, ...]:
    from pilothouse.cli.admin_client import AdminClient
    from pilothouse.cli.locate import chosen_fleet, require_running

    paths = chosen_fleet(fleet, os.environ)
    async with AdminClient(paths, require_running(paths)) as admin:
        return (await admin.reload()).changes
