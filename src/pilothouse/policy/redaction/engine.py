"""The matching engines: Hyperscan, and RE2 where it is not installed. Both read the same expressions and find the same.

Neither backtracks, so no expression and no text can make them slow. They come with the extra `filters`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Span = tuple[int, int, int]
"""(index of the expression, start, end) in characters."""


class Engine(Protocol):
    """What is needed of a matching engine."""

    name: str

    def triggers(self, expressions: Sequence[str]) -> Callable[[str], list[int]]:
        """A function from text to the indices of the expressions that are somewhere in it."""

    def spans(self, expressions: Sequence[tuple[str, bool]]) -> Callable[[str], list[Span]]:
        """A function from text to all matches of (expression, whether case is ignored).

        Overlapping matches may be joined or not, but every character of a match is in a span.

        Raises:
            ValueError: an expression cannot be built, in the engine's words.
        """

    def open_at_end(self, expressions: Sequence[tuple[str, bool]]) -> Callable[[str], tuple[int, int] | None]:
        """A function from text to (start, index) of the match that reaches its end and begins first, if any."""


class ExtraMissingError(Exception):
    """Neither engine, or one of the libraries that detectors ask, is installed."""


def best_engine(name: str | None = None) -> Engine:
    """Hyperscan if it is installed, else RE2; or the one that is named (`hyperscan` or `re2`).

    Raises:
        ExtraMissingError: it is not installed.
    """
    for known, engine in (("hyperscan", HyperscanEngine), ("re2", Re2Engine)):
        if name not in (None, known):
            continue
        try:
            return engine()
        except ImportError:
            continue
    raise ExtraMissingError("filters need their matching engine: pip install 'pilothouse[filters]'")


_TRIGGERS: dict[tuple[str, ...], Any] = {}
"""Databases by their expressions: sets of filters that look for the same entities share one. Bounded by the sets of
built-in entities that fleet files name."""


class HyperscanEngine:
    """Hyperscan in block mode: pieces are cut where no match lies across, so no stream state is needed."""

    name = "hyperscan"

    def __init__(self) -> None:
        import hyperscan

        self._library: Any = hyperscan

    def _database(self, expressions: Sequence[tuple[str, int]]) -> Any:
        library = self._library
        database = library.Database(mode=library.HS_MODE_BLOCK)
        try:
            database.compile(
                expressions=[text.encode() for text, _ in expressions],
                ids=list(range(len(expressions))),
                flags=[flags for _, flags in expressions],
            )
        except library.error as error:
            raise ValueError(str(error)) from error
        return database

    def triggers(self, expressions: Sequence[str]) -> Callable[[str], list[int]]:
        """See `Engine`."""
        once = self._library.HS_FLAG_SINGLEMATCH
        known = tuple(expressions)
        if known not in _TRIGGERS:
            _TRIGGERS[known] = self._database([(text, once) for text in expressions])
        scan = _TRIGGERS[known].scan
        found: list[int] = []

        def on_match(index: int, start: int, end: int, flags: int, context: object) -> None:
            found.append(index)

        def search(text: str) -> list[int]:
            found.clear()
            scan(text.encode("ascii", "replace"), on_match)
            return found

        return search

    def _flags(self, ignores_case: bool) -> int:
        library = self._library
        flags = library.HS_FLAG_SOM_LEFTMOST | library.HS_FLAG_UTF8
        return int(flags | library.HS_FLAG_CASELESS if ignores_case else flags)

    def spans(self, expressions: Sequence[tuple[str, bool]]) -> Callable[[str], list[Span]]:
        """See `Engine`."""
        scan = self._database([(text, self._flags(ignores_case)) for text, ignores_case in expressions]).scan
        found: list[Span] = []

        def on_match(index: int, start: int, end: int, flags: int, context: object) -> None:
            found.append((index, start, end))

        def search(text: str) -> list[Span]:
            found.clear()
            data = text.encode()
            scan(data, on_match)
            if len(data) == len(text):
                return list(found)
            return [(index, len(data[:start].decode()), len(data[:end].decode())) for index, start, end in found]

        return search

    def open_at_end(self, expressions: Sequence[tuple[str, bool]]) -> Callable[[str], tuple[int, int] | None]:
        """See `Engine`."""
        search = self.spans([(rf"(?:{text})\z", ignores_case) for text, ignores_case in expressions])

        def earliest(text: str) -> tuple[int, int] | None:
            return min(((start, index) for index, start, end in search(text) if start < end), default=None)

        return earliest


class Re2Engine:
    """RE2: a set of expressions says which are there, and one at a time says where."""

    name = "re2"

    def __init__(self) -> None:
        import re2

        self._library: Any = re2

    def triggers(self, expressions: Sequence[str]) -> Callable[[str], list[int]]:
        """See `Engine`."""
        built = self._library.Set.SearchSet()
        for text in expressions:
            built.Add(text)
        built.Compile()
        match = built.Match

        def search(text: str) -> list[int]:
            return match(text if text.isascii() else text.encode("ascii", "replace").decode()) or []

        return search

    def _compiled(self, text: str, ignores_case: bool) -> Any:
        options = self._library.Options()
        options.longest_match = True
        options.never_nl = False
        options.case_sensitive = not ignores_case
        options.log_errors = False
        options.max_mem = MAX_PATTERN_BYTES
        try:
            return self._library.compile(text, options=options)
        except self._library.error as error:
            said = error.args[0] if error.args else ""
            raise ValueError(said.decode() if isinstance(said, bytes) else str(said)) from error

    def spans(self, expressions: Sequence[tuple[str, bool]]) -> Callable[[str], list[Span]]:
        """See `Engine`."""
        compiled = [self._compiled(text, ignores_case) for text, ignores_case in expressions]

        def search(text: str) -> list[Span]:
            found: list[Span] = []
            for index, each in enumerate(compiled):
                match = each.search(text)
                while match is not None:
                    found.append((index, match.start(), match.end()))
                    # From the next character, not from the end: the matches that overlap count too.
                    match = each.search(text, match.start() + 1)
            return found

        return search

    def open_at_end(self, expressions: Sequence[tuple[str, bool]]) -> Callable[[str], tuple[int, int] | None]:
        """See `Engine`."""
        compiled = [self._compiled(rf"(?:{text})\z", ignores_case) for text, ignores_case in expressions]

        def earliest(text: str) -> tuple[int, int] | None:
            matches = [(index, each.search(text)) for index, each in enumerate(compiled)]
            found = [(match.start(), index) for index, match in matches if match is not None]
            return min(((start, index) for start, index in found if start < len(text)), default=None)

        return earliest


MAX_PATTERN_BYTES = 8 * 1024 * 1024
"""8 MiB, RE2's default: an expression that needs more for its automaton is refused."""
