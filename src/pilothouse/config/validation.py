"""A tree of plain values against the schema: the file as a `FleetFile`, or every problem in our own words."""

import types
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pilothouse.config.problems import Problem, SpecPath, nearest_name
from pilothouse.config.schema import FleetFile, Section

_KIND_WORDS = {
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
}
_BOUND_WORDS = {
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "too_short": "needs at least one entry",
}


def validate(value: dict[str, Any]) -> tuple[FleetFile | None, list[Problem]]:
    """The file, or `None` and its problems."""
    try:
        return FleetFile.model_validate(value), []
    except ValidationError as error:
        return None, [_problem(each) for each in error.errors(include_url=False)]


def _problem(error: ErrorDetails) -> Problem:
    path: SpecPath = tuple(part for part in error["loc"] if part != "[key]")
    if error["type"] == "extra_forbidden":
        key = str(path[-1])
        return Problem(path=path, message="unknown key", suggestion=nearest_name(key, _keys_at(path[:-1])))
    return Problem(path=path, message=_message(error))


def _message(error: ErrorDetails) -> str:
    """Words for one error. They never repeat a value, which could be a secret in the wrong place."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if error["input"] is None:
        return "has no value: give it one, or remove the key"
    if kind in _KIND_WORDS:
        hint = "; put it in quotes" if kind == "string_type" and not isinstance(error["input"], dict | list) else ""
        return f"must be {_KIND_WORDS[kind]}, not {_kind_of(error['input'])}{hint}"
    if kind in _BOUND_WORDS:
        return _BOUND_WORDS[kind].format(**context)
    return error["msg"]


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    words = {dict: "a mapping", list: "a list", str: "a text", int: "a whole number", float: "a number"}
    return words[type(value)]


def _keys_at(path: SpecPath) -> list[str]:
    """The keys that the mapping at `path` may have."""
    annotation: Any = FleetFile
    for part in path:
        annotation = _inside(annotation, part)
    section = _bare(annotation)
    return list(section.model_fields) if isinstance(section, type) and issubclass(section, Section) else []


def _inside(annotation: Any, part: str | int) -> Any:
    bare = _bare(annotation)
    if isinstance(bare, type) and issubclass(bare, Section):
        return bare.model_fields[str(part)].annotation
    return get_args(bare)[-1]


def _bare(annotation: Any) -> Any:
    """The annotation without `Annotated` and without `| None`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated or origin in {Union, types.UnionType}:
            annotation = get_args(annotation)[0]
        else:
            return annotation
