"""The fleet file: found, read, overridden by the command line and the environment, checked, and made a `FleetSpec`.

Precedence: command line, then PILOTHOUSE_* variables, then the file, then the defaults of the schema.
"""

import importlib.resources
from collections.abc import Mapping
from pathlib import Path

from pilothouse.config.changes import changes
from pilothouse.config.cross_checks import cross_check
from pilothouse.config.effective import effective_yaml
from pilothouse.config.loaded import LoadedFleet
from pilothouse.config.problems import Origins, Problem, invalid
from pilothouse.config.schema import FleetFile, json_schema
from pilothouse.config.settings import Overrides, apply_overrides, read_overrides
from pilothouse.config.spec_building import build_spec
from pilothouse.config.validation import validate
from pilothouse.config.yaml_tree import MAX_BYTES, parse_yaml
from pilothouse.model.errors import PilothouseError

__all__ = ["LoadedFleet", "changes", "effective_yaml", "json_schema", "load"]

DEFAULT_FILE = Path("fleet.yaml")
_BUILT_IN = "the built-in fleet"


def load(path: Path | None, *, overrides: Mapping[str, str] | None = None, env: Mapping[str, str]) -> LoadedFleet:
    """The fleet file at `path`; without one `./fleet.yaml` if it is there, else the built-in fleet.

    Args:
        path: The file.
        overrides: Dotted settings from the command line, such as `{"gateway.workers": "2"}`.
        env: The environment: PILOTHOUSE_* settings, and the variables that secrets refer to.

    Raises:
        PilothouseError: config_not_found; config_invalid with every problem, a line each, as
            `FILE:LINE: PATH: MESSAGE (did you mean ...?)`; or secret_not_found with every secret that is missing.
    """
    if path is None and (DEFAULT_FILE.exists() or DEFAULT_FILE.is_symlink()):
        path = DEFAULT_FILE
    content = _read(path)
    name = _BUILT_IN if path is None else str(path)
    outside = read_overrides(overrides or {}, env)
    file, origins = _check(content, name, outside)
    directory = Path.cwd() if path is None else path.absolute().parent
    spec, missing, wrong = build_spec(file, directory, env)
    if wrong:
        raise invalid(wrong, origins)
    if missing:
        raise invalid(missing, origins, "secret_not_found")
    return LoadedFleet(
        spec=spec,
        path=None if path is None else path.absolute(),
        text=content.decode("utf-8-sig"),
        warnings=outside.warnings,
        file=file,
        origins=origins,
    )


def _read(path: Path | None) -> bytes:
    if path is None:
        return importlib.resources.files("pilothouse.config").joinpath("builtin_fleet.yaml").read_bytes()
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PilothouseError("config_not_found", f"{path} cannot be read: {error.strerror}") from error


def _check(content: bytes, name: str, outside: Overrides) -> tuple[FleetFile, Origins]:
    tree = parse_yaml(content)
    origins = Origins(
        file=name,
        lines=tree.lines,
        scalars=tree.scalars,
        overridden={each.path: each.origin for each in outside.found},
    )
    problems = [*tree.problems, *outside.problems]
    file = None
    if isinstance(tree.value, dict):
        value = apply_overrides(tree.value, outside.found)
        file, wrong = validate(value)
        problems += [*wrong, *cross_check(value, origins)]
    elif not tree.problems:
        problems.append(Problem(path=(), message="a fleet file is a mapping; the smallest is models: {NAME: SOURCE}"))
    if problems or file is None:
        raise invalid(problems, origins)
    return file, origins
