"""YAML text to plain values, with the line of each, and every problem rather than the first.

The language is the core schema of YAML 1.2 (`on` and `no` are text), less what a fleet file has no use for and what
could surprise or harm: tags, merge keys, several documents, repeated keys, keys that are not text, numbers that other
programs could not hold. Anchors and aliases work within the bounds below.

It is built on ruamel.yaml's events: its constructors would make objects of tags and lose lines and repeated keys.
"""

import re
from typing import Any, NamedTuple

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from pilothouse.config.problems import Problem, SpecPath

MAX_BYTES = 512 * 1024  # over a thousand deployments in the long form; the worst of them parses in about a second
MAX_NODES = 20_000  # with aliases counted as what they stand for, so that none can stand for a billion
MAX_DEPTH = 32

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_INT64 = range(-(2**63), 2**63)
_MAX_INTEGER_TEXT = 24


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """What a text says. `value` is `None` when it could not be read to the end; `problems` then says why.

    `lines` and `scalars` are as in `Origins`. Values that aliases stand for are shared: do not change them.
    """

    value: Any
    lines: dict[SpecPath, int]
    scalars: frozenset[SpecPath]
    problems: tuple[Problem, ...]


class Scalar(NamedTuple):
    """A plain scalar's value, or why there is none."""

    value: str | int | float | bool | None
    problem: str | None = None


def parse_yaml(content: bytes) -> Tree:
    """Read one document. Never raises: whatever is wrong is among the problems."""
    builder = _Builder()
    try:
        builder.read(content)
    except _UnreadableError as error:
        builder.problems.append(error.problem)
        builder.root = None
    return Tree(
        value=builder.root,
        lines=builder.lines,
        scalars=frozenset(builder.scalars),
        problems=tuple(builder.problems),
    )


def plain_scalar(text: str) -> Scalar:
    """What an unquoted scalar means in the core schema."""
    if text in _NULL:
        return Scalar(None)
    if text in _BOOLEANS:
        return Scalar(_BOOLEANS[text])
    if _INTEGER.fullmatch(text):
        number = int(text, 0 if text[:2] in {"0o", "0x"} else 10) if len(text) <= _MAX_INTEGER_TEXT else None
        if number is None or number not in _INT64:
            return Scalar(0, "the number does not fit 64 bits; put it in quotes if it is a text")
        return Scalar(number)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if value in {float("inf"), float("-inf")}:
            return Scalar(0, "the number is too large")
        return Scalar(value)
    if _NOT_FINITE.fullmatch(text):
        return Scalar(0, "must be a finite number")
    return Scalar(text)


def _quoted_scalar(text: str) -> Scalar:
    """A quoted scalar. JSON escapes characters beyond 16 bits as two halves, which YAML reads apart."""
    if text.isascii():
        return Scalar(text)
    try:
        return Scalar(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le"))
    except UnicodeDecodeError:
        return Scalar("", "the text holds half of a character")


class _UnreadableError(Exception):
    def __init__(self, message: str, line: int, path: SpecPath = ()) -> None:
        super().__init__(message)
        self.problem = Problem(path=path, message=message, line=line)


class _Missing:
    """No key yet."""


class _Open:
    """A mapping or list whose end has not come."""

    __slots__ = ("anchor", "container", "key", "key_line", "line", "nodes", "path")

    def __init__(self, container: dict[str, Any] | list[Any], path: SpecPath, line: int, anchor: str | None) -> None:
        self.container = container
        self.path = path
        self.line = line
        self.anchor = anchor
        self.key: str | type[_Missing] = _Missing
        self.key_line = line
        self.nodes = 1

    def awaits_key(self) -> bool:
        return isinstance(self.container, dict) and self.key is _Missing

    def child_path(self) -> SpecPath:
        if isinstance(self.container, list):
            return (*self.path, len(self.container))
        return (*self.path, str(self.key))


class _Builder:
    def __init__(self) -> None:
        self.root: Any = None
        self.lines: dict[SpecPath, int] = {}
        self.scalars: set[SpecPath] = set()
        self.problems: list[Problem] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._documents = 0

    def read(self, content: bytes) -> None:
        text = _decode(content)
        try:
            for event in YAML(typ="safe", pure=True).parse(text):
                self._handle(event)
        except MarkedYAMLError as error:
            lines = text.splitlines()
            # What is not closed is noticed at the end of the file, and began at the context.
            marks = [mark.line + 1 for mark in (error.problem_mark, error.context_mark) if mark is not None]
            line = next((each for each in marks if each <= len(lines)), 1)
            raise _UnreadableError(_explain(error, lines[line - 1 : line]), line) from error
        except ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise _UnreadableError("the file holds a character that YAML does not allow", line) from error
        if not self._documents:
            raise _UnreadableError("the file is empty", 1)

    def _handle(self, event: Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _UnreadableError("a fleet file is one document: remove the second one", line)
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            self._close()
        elif isinstance(event, NodeEvent):
            self._node(event, line)

    def _node(self, event: NodeEvent, line: int) -> None:
        if isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent) and event.tag is not None:
            self._problem("tags are not supported", line)
        if self._open and self._open[-1].awaits_key():
            self._set_key(event, line)
        elif isinstance(event, ScalarEvent):
            self._scalar(event, line)
        elif isinstance(event, AliasEvent):
            if event.anchor not in self._anchors:
                raise _UnreadableError(f"the alias *{event.anchor} stands for nothing before it", line, self._place())
            value, nodes = self._anchors[event.anchor]
            place = self._place()
            self._add(value, line, nodes, scalar=not isinstance(value, dict | list))
            self._place_inside(value, place, line)
        else:
            self._begin({} if isinstance(event, MappingStartEvent) else [], event, line)

    def _begin(self, container: dict[str, Any] | list[Any], event: NodeEvent, line: int) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise _UnreadableError(f"nested more than {MAX_DEPTH} deep", line)
        self._open.append(_Open(container, self._place(), line, event.anchor))

    def _close(self) -> None:
        done = self._open.pop()
        if done.anchor is not None:
            self._anchors[done.anchor] = (done.container, done.nodes)
        self._add(done.container, done.line, done.nodes, scalar=False)

    def _scalar(self, event: ScalarEvent, line: int) -> None:
        value, problem = plain_scalar(event.value) if event.style is None else _quoted_scalar(event.value)
        if problem:
            self._problem(problem, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1)
        self._add(value, line, 1, scalar=True)

    def _set_key(self, event: NodeEvent, line: int) -> None:
        parent = self._open[-1]
        if not isinstance(event, ScalarEvent):
            raise _UnreadableError("a key must be a text", line, parent.path)
        if event.style is None:
            if event.value == "<<":
                self._problem("merge keys are not supported", line)
            elif not isinstance(plain_scalar(event.value).value, str):
                self._problem(f"the key {event.value} must be a text: put it in quotes", line)
        if event.anchor is not None:
            self._anchors[event.anchor] = (event.value, 1)
        key, problem = _quoted_scalar(event.value)
        if problem:
            self._problem(problem, line)
        parent.key, parent.key_line = str(key), line

    def _add(self, value: Any, line: int, nodes: int, *, scalar: bool) -> None:
        if not self._open:
            self.root = value
            return
        parent = self._open[-1]
        parent.nodes += nodes
        if sum(each.nodes for each in self._open) > MAX_NODES:
            raise _UnreadableError(f"the file has more than {MAX_NODES:,} values, aliases counted in full", line)
        path = parent.child_path()
        if isinstance(parent.container, list):
            self.lines[path] = line
            parent.container.append(value)
        else:
            key, key_line = str(parent.key), parent.key_line
            parent.key = _Missing
            if key in parent.container:
                first = self.lines[path]
                self.problems.append(
                    Problem(path=path, message=f"the key is repeated; it is first on line {first}", line=key_line)
                )
                return
            self.lines[path] = key_line
            parent.container[key] = value
        if scalar:
            self.scalars.add(path)

    def _place_inside(self, value: Any, path: SpecPath, line: int) -> None:
        """Everything that an alias stands for is on the alias's line."""
        items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, each in items:
            self.lines.setdefault((*path, key), line)
            if isinstance(each, dict | list):
                self._place_inside(each, (*path, key), line)
            else:
                self.scalars.add((*path, key))

    def _place(self) -> SpecPath:
        return self._open[-1].child_path() if self._open and not self._open[-1].awaits_key() else ()

    def _problem(self, message: str, line: int) -> None:
        self.problems.append(Problem(path=self._place(), message=message, line=line))


def _decode(content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise _UnreadableError(f"the file is larger than {MAX_BYTES // 1024} KiB", 1)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _UnreadableError("the file is not UTF-8 text", line) from error


def _explain(error: MarkedYAMLError, line: list[str]) -> str:
    """The parser's words, and what to do about the mistakes that are made most."""
    text = line[0] if line else ""
    problem = error.problem or "this is not YAML"
    if "\t" in problem or "\\t" in problem:
        return "a tab: YAML is indented with spaces"
    if re.search(r":\s+\[[0-9A-Fa-f:.]*\]:\d", text):
        return "put an address in brackets into quotes"
    context = f", {error.context}" if error.context else ""
    return f"this is not YAML: {problem}{context}"
