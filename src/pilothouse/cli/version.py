"""`pilothouse version`: what is installed here."""

import platform
import sys

import pilothouse
from pilothouse.cli.exits import Exit
from pilothouse.cli.output import json_text


def version(*, json: bool = False) -> int:
    """Print the version of Pilothouse and of what it stands on.

    $ pilothouse version
    $ pilothouse version --json

    Args:
        json: As JSON, `null` for an engine that is not installed.
    """
    engines = engine_versions()
    found = {
        "pilothouse": pilothouse.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": sys.executable,
        "engines": engines,
    }
    if json:
        print(json_text(found))
        return Exit.OK
    print(f"pilothouse {pilothouse.__version__}")
    print(f"python     {found['python']} ({sys.executable})")
    print(f"platform   {found['platform']}")
    for name, installed in engines.items():
        print(f"engine     {name} {installed or 'not installed'}")
    return Exit.OK


def engine_versions() -> dict[str, str | None]:
    """The version of each engine that Pilothouse can launch; `None` where it is not installed."""
    from pilothouse.engines import registry

    drivers = (registry.driver(name) for name in registry.names())
    return {driver.name: driver.installed_version() for driver in drivers if driver.launches_process}
