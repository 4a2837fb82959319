"""Settings from outside the file: `gateway.workers=2` on the command line, PILOTHOUSE_GATEWAY_WORKERS=2 around it.

Which ones there are follows from the schema: every single value but those under `models`.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from pilothouse.config.problems import Problem, SpecPath, nearest_name
from pilothouse.config.schema import FleetFile, Section
from pilothouse.config.yaml_tree import plain_scalar

COMMAND_LINE = "command line"
_PREFIX = "PILOTHOUSE_"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One value that can be set from outside. `kind` is `str`, `int` or `float`."""

    path: tuple[str, ...]
    kind: type[str] | type[int] | type[float]

    @property
    def key(self) -> str:
        """As on the command line: `gateway.workers`."""
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        """As in the environment: `PILOTHOUSE_GATEWAY_WORKERS`."""
        return _PREFIX + "_".join(self.path).upper()


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """A value from outside. `origin` says from where, for people."""

    path: tuple[str, ...]
    value: str | int | float
    origin: str


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """All that was set from outside, the strongest only; and what could not be understood, or was perhaps meant."""

    found: tuple[Override, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


@functools.cache
def settings() -> tuple[Setting, ...]:
    """Every setting, in the order of the schema."""
    return tuple(_leaves(FleetFile, ()))


def read_overrides(command_line: Mapping[str, str], env: Mapping[str, str]) -> Overrides:
    """What the command line (dotted keys) and the environment set. The command line is the stronger.

    An empty variable counts as not set. An unknown one that looks like a setting is a warning, not a problem:
    container platforms put variables like PILOTHOUSE_GATEWAY_SERVICE_HOST into every environment.
    """
    found: dict[tuple[str, ...], Override] = {}
    problems: list[Problem] = []
    for setting in settings():
        if text := env.get(setting.variable, ""):
            found[setting.path] = _override(setting, text, f"environment {setting.variable}")
    by_key = {setting.key: setting for setting in settings()}
    for key, text in command_line.items():
        if key in by_key:
            found[by_key[key].path] = _override(by_key[key], text, COMMAND_LINE)
        else:
            suggestion = nearest_name(key, by_key)
            problems.append(
                Problem(
                    path=tuple(key.split(".")),
                    message="cannot be set from outside the file",
                    suggestion=suggestion,
                    origin=COMMAND_LINE,
                )
            )
    return Overrides(found=tuple(found.values()), problems=tuple(problems), warnings=tuple(_warnings(env)))


def apply_overrides(tree: dict[str, Any], overrides: tuple[Override, ...]) -> dict[str, Any]:
    """The tree with the values put in, as a copy. Where the file has no mapping to put one in, its mistake stays."""
    for override in overrides:
        tree = _with(tree, override.path, override.value)
    return tree


def _leaves(section: type[Section], path: tuple[str, ...]) -> Iterator[Setting]:
    for name, field in section.model_fields.items():
        annotation = field.annotation
        if not isinstance(annotation, type):
            continue
        if annotation in {str, int, float}:
            yield Setting(path=(*path, name), kind=annotation)
        elif issubclass(annotation, Section):
            yield from _leaves(annotation, (*path, name))


def _override(setting: Setting, text: str, origin: str) -> Override:
    value: Any = text if setting.kind is str else plain_scalar(text).value
    if isinstance(value, bool) or not isinstance(value, setting.kind | int):
        value = text  # of the wrong type, which the schema then says
    return Override(path=setting.path, value=value, origin=origin)


def _with(tree: dict[str, Any], path: SpecPath, value: Any) -> dict[str, Any]:
    key = str(path[0])
    if len(path) == 1:
        return {**tree, key: value}
    inner = tree.get(key, {})
    return {**tree, key: _with(inner, path[1:], value)} if isinstance(inner, dict) else tree


def _warnings(env: Mapping[str, str]) -> Iterator[str]:
    known = {setting.variable.removeprefix(_PREFIX): setting.variable for setting in settings()}
    sections = tuple(f"{_PREFIX}{name.upper()}_" for name in ("gateway", "controller"))
    for variable in sorted(env):
        name = variable.removeprefix(_PREFIX)
        if variable.startswith(sections) and name not in known:
            meant = nearest_name(name, known, likeness=0.8)
            yield f"{variable} is not a setting{f' (did you mean {known[meant]}?)' if meant else ''}"
