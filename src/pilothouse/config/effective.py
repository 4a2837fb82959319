"""The effective form: the whole configuration in its long form, and where each value came from.

It is a fleet file itself: loading it gives the same fleet. Secrets stay references.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.config.filter_schema import FilterSection
from pilothouse.config.loaded import LoadedFleet
from pilothouse.config.problems import Origins, SpecPath
from pilothouse.config.section import Section
from pilothouse.config.yaml_tree import plain_scalar
from pilothouse.model.spec import DeploymentSpec, Timeouts

_WIDENED = frozenset({("engine", "name"), ("weights", "source"), ("upstream", "url")})
"""What a short form stands for; all else beside it is a default."""
_WIDENED_FILTERS = frozenset({"pattern", "file"})
"""The same under names of the operator's choice."""
_PLAIN = re.compile(r"[A-Za-z0-9/]([A-Za-z0-9._/@:+=-]*[A-Za-z0-9._/@+=-])?")
_COMMENT_COLUMN = 60


def effective_yaml(loaded: LoadedFleet) -> str:
    """The effective form as YAML, each value with a comment that says where it came from."""
    lines = []
    for depth, text, path in _lines(_tree(loaded), (), 0, ""):
        line = "  " * depth + text
        lines.append(f"{line:<{_COMMENT_COLUMN}}  # {_origin(path, loaded.origins)}" if path is not None else line)
    return "\n".join(lines) + "\n"


def _tree(loaded: LoadedFleet) -> dict[str, Any]:
    spec = loaded.spec
    limits: dict[str, Any] = msgspec.to_builtins(spec.gateway.limits)
    filters = {name: _filter(section, loaded) for name, section in loaded.file.filters.items()}
    return {
        "fleet": spec.name,
        "models": {
            model.name: {
                "deployments": [
                    _deployment(deployment, loaded, ("models", model.name, "deployments", index))
                    for index, deployment in enumerate(model.deployments)
                ],
                **_timeouts(model.timeouts),
                **_section("price", loaded.file.models[model.name].price),
                **({"routing": routing} if (routing := msgspec.to_builtins(model.routing)) else {}),
            }
            for model in spec.models
        },
        **({"filters": filters} if filters else {}),
        "gateway": {
            "listen": str(spec.gateway.listen),
            "workers": spec.gateway.workers,
            "limits": limits,
            **({"timeouts": msgspec.to_builtins(spec.gateway.timeouts)} if spec.gateway.timeouts else {}),
            **({"tls": _without_empty(msgspec.to_builtins(spec.gateway.tls))} if spec.gateway.tls else {}),
            **({"access_log": {"sample": sample}} if (sample := spec.gateway.access_log_sample) is not None else {}),
            **({"traces": msgspec.to_builtins(spec.gateway.traces)} if spec.gateway.traces else {}),
            **({"cors": {"origins": list(spec.gateway.cors_origins)}} if spec.gateway.cors_origins else {}),
            **_section("shared_limits", loaded.file.gateway.shared_limits),
            **_section("queue", loaded.file.gateway.queue),
        },
        "controller": {"listen": str(spec.controller.listen), **_database(loaded)},
        **_section("auth", loaded.file.auth),
        **_section("posture", loaded.file.posture),
    }


def _section(name: str, section: Section | None) -> dict[str, Any]:
    """A section as the file has it, references and all, where it says something."""
    found = {} if section is None else section.model_dump(mode="json", exclude_defaults=True)
    return {name: found} if found else {}


def _database(loaded: LoadedFleet) -> dict[str, Any]:
    reference = loaded.file.controller.database
    return {} if reference is None else {"database": reference}


def _timeouts(timeouts: Timeouts) -> dict[str, Any]:
    """The section, where it says something."""
    found = msgspec.to_builtins(timeouts)
    return {"timeouts": found} if found else {}


def _deployment(spec: DeploymentSpec, loaded: LoadedFleet, path: SpecPath) -> dict[str, Any]:
    section = loaded.file.models[spec.model].deployments[int(path[-1])]
    reference = section.upstream.api_key if section.upstream else None
    engine = {"name": spec.engine.name, "version": spec.engine.version, "args": spec.engine.args or None}
    weights = spec.weights and {"source": spec.weights.source, "sha256": spec.weights.sha256}
    upstream = spec.upstream and {"url": spec.upstream.url, "model": spec.upstream.model, "api_key": reference}
    return {
        "name": spec.name,
        "engine": _without_empty(engine),
        **({"weights": _without_empty(weights)} if weights else {}),
        **({"upstream": _without_empty(upstream)} if upstream else {}),
        "replicas": spec.replicas,
        **_section("capacity", section.capacity),
    }


def _filter(section: FilterSection, loaded: LoadedFleet) -> dict[str, Any]:
    """A filter as it was written; files by their absolute path, `hash_key` as a reference."""
    directory = Path.cwd() if loaded.path is None else loaded.path.parent
    written: dict[str, Any] = section.model_dump(exclude_unset=True, exclude_none=True)
    safety = [each["phrases"] for each in written.get("safety", {}).values() if "phrases" in each]
    for phrases in (*written.get("phrases", {}).values(), *safety):
        if "file" in phrases:
            phrases["file"] = str(directory / phrases["file"])
    return written


def _without_empty(mapping: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value is not None}


def _lines(value: Any, path: SpecPath, depth: int, lead: str) -> Iterator[tuple[int, str, SpecPath | None]]:
    """(depth, text, path of the value on this line or `None`) of a mapping's or list's lines.

    `lead` is what the first line begins with: the dash of the list item that this is.
    """
    items: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        label = "- " if isinstance(value, list) else f"{_scalar(key)}: "
        inner = (*path, key)
        if not isinstance(each, dict | list) or not each:
            yield depth, lead + label + _scalar(each), inner
        elif isinstance(value, list) and isinstance(each, dict):
            nested = _lines(each, inner, depth + 1, "")
            first_depth, text, first_path = next(nested)
            yield first_depth - 1, lead + label + text, first_path
            yield from nested
        else:
            yield depth, (lead + label).rstrip(), None
            yield from _lines(each, inner, depth + 1, "")


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    return json.dumps(value)  # numbers, booleans, null and empty collections are the same in JSON and YAML


def _is_plain(text: str) -> bool:
    """Whether a text means itself without quotes, by a rule much narrower than YAML's."""
    return _PLAIN.fullmatch(text) is not None and plain_scalar(text).value == text


def _quoted(text: str) -> str:
    """A text in double quotes, on one line."""
    return '"' + "".join(_escaped(each) for each in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return f"\\U{ord(character):08x}"


def _origin(path: SpecPath, origins: Origins) -> str:
    nearest = origins.nearest(path)
    if nearest == path:
        return origins.place(path)
    return (
        origins.place(path)
        if nearest in origins.scalars and (path[-2:] in _WIDENED or path[-1] in _WIDENED_FILTERS)
        else "default"
    )
