"""What is wrong with a fleet file: where, what, and what was probably meant. All of it in one error."""

import difflib
import re
from collections.abc import Iterable, Mapping

import msgspec

from pilothouse.model.errors import PilothouseError

SpecPath = tuple[str | int, ...]
"""Where something is in the long form of the file, for example `("models", "smollm2", "deployments", 0, "name")`."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem. `line` (from 1) or `origin` is set where the path does not lead to the place."""

    path: SpecPath
    message: str
    suggestion: str | None = None
    line: int | None = None
    origin: str | None = None


class Origins(msgspec.Struct, frozen=True, kw_only=True):
    """Where the values of a configuration came from.

    Attributes:
        file: The file's name for messages.
        lines: The line of every key and list item that the file has, from 1.
        scalars: The paths in the file whose value is neither a mapping nor a list.
        overridden: The paths set from outside the file, and by what: `command line`, or `environment NAME`.
    """

    file: str
    lines: Mapping[SpecPath, int] = {}
    scalars: frozenset[SpecPath] = frozenset()
    overridden: Mapping[SpecPath, str] = {}

    def nearest(self, path: SpecPath) -> SpecPath:
        """The longest beginning of `path` that somebody wrote down."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.overridden or path[:length] in self.lines:
                return path[:length]
        return ()

    def place(self, path: SpecPath) -> str:
        """Where to look for `path`, or for what would hold it: `fleet.yaml:7`, or what set it from outside."""
        found = self.nearest(path)
        if found in self.overridden:
            return self.overridden[found]
        return f"{self.file}:{self.lines.get(found, 1)}"

    def written(self, path: SpecPath) -> SpecPath:
        """The path as the file's author knows it: that of the short form where one stands for `path`."""
        found = self.nearest(path)
        return found if found in self.scalars else path


def dotted(path: SpecPath) -> str:
    """A path for people: `models.smollm2.deployments[0].name`; keys with other characters are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if _PLAIN_KEY.fullmatch(part) else '"' + part.encode("unicode_escape").decode() + '"'
            text += f".{key}" if text else key
    return text


def nearest_name(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known name most like `name`, `None` when none is like it. `likeness` is from 0 to 1, as difflib has it."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)
    return found[0] if found else None


def invalid(problems: Iterable[Problem], origins: Origins, code: str = "config_invalid") -> PilothouseError:
    """The error that tells of all the problems, a line each, in the order of the file."""
    lines = sorted({_line(each, origins) for each in problems})
    return PilothouseError(code, "\n".join(text for _, text in lines))


def _line(problem: Problem, origins: Origins) -> tuple[int, str]:
    written = problem.path if problem.origin else origins.written(problem.path)
    if problem.origin is not None:
        number, place = 0, problem.origin
    elif problem.line is not None:
        number, place = problem.line, f"{origins.file}:{problem.line}"
    else:
        number, place = origins.lines.get(origins.nearest(problem.path), 0), origins.place(problem.path)
    where = f"{dotted(written)}: " if written else ""
    meant = f" (did you mean {problem.suggestion!r}?)" if problem.suggestion else ""
    return number, f"{place}: {where}{problem.message}{meant}"
