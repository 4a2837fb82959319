"""Which versions an advisory is about: OSV's evaluation, on positions instead of versions.

The bounds of all advisories of a package are sorted once. Bound number i is position 2i + 1, and what lies between two
bounds is the even position between, so that every comparison is one of small integers and what holds for a position
holds for every version at it.

https://ossf.github.io/osv-schema/#evaluation
"""

import enum
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

from pilothouse.policy.advisories.packages import Package
from pilothouse.policy.advisories.records import OsvAffected, OsvRange
from pilothouse.policy.advisories.versions import FIRST, VersionKey, parse_version


class Coverage(enum.IntEnum):
    """What records say of a version. Of several the highest counts, but that a bound beats none (see `_united`).

    `OPEN`: above the last version known to be affected, and no version is known to be fixed.
    """

    UNSPECIFIED = 0
    CLEAR = 1
    OPEN = 2
    UNREADABLE = 3
    AFFECTED = 4


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Positions from `start` to before `end` of which records say the same. `end` is `None` for all above."""

    start: int
    end: int | None
    coverage: Coverage


class Kind(enum.IntEnum):
    """Events at one position are taken in this order, so that an affected version is never called clear."""

    LIMIT = 0
    FIXED = 1
    LAST_AFFECTED = 2
    INTRODUCED = 3


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One record's `affected` for one package, read.

    Attributes:
        source: The record's id.
        ranges: (bound, kind) of each range.
        versions: Listed versions.
        readable: Nothing in it was misunderstood.
        bounded: It tells affected versions from others.
        text: The ranges in words.
    """

    source: str
    ranges: tuple[tuple[tuple[VersionKey, Kind], ...], ...]
    versions: frozenset[VersionKey]
    readable: bool
    bounded: bool
    text: str


class Bounds:
    """The sorted bounds of one package."""

    def __init__(self, texts: dict[VersionKey, str]) -> None:
        self._keys = sorted(texts)
        self._texts = [texts[key] for key in self._keys]
        self._at = {key: 2 * index + 1 for index, key in enumerate(self._keys)}

    def position(self, key: VersionKey) -> int:
        """Where a version is."""
        return self._at.get(key) or 2 * bisect_left(self._keys, key)

    def text(self, position: int) -> str:
        """The version at an odd position, or words for those between two."""
        if position % 2:
            return self._texts[position // 2]
        below, above = self._texts[: position // 2][-1:], self._texts[position // 2 :][:1]
        return " and ".join([*(f"later than {each}" for each in below), *(f"before {each}" for each in above)]) or "any"


def read_entry(source: str, affected: OsvAffected, package: Package, texts: dict[VersionKey, str]) -> Entry:
    """Parse the versions of one entry, adding them to `texts`. What is not understood is unreadable, never clear."""
    ranges, readable = [], True
    usable = [each for each in affected.ranges if each.type != "GIT"]
    for each in usable:
        try:
            ranges.append(tuple(_events(each, package, texts)))
        except ValueError:
            readable = False
    versions = set()
    for version in affected.versions:
        try:
            key = parse_version(version, package.grammar)
        except ValueError:
            # Ranges say it all; a list alone is not trusted when a part of it is not understood.
            readable = readable and bool(ranges)
            continue
        texts.setdefault(key, version)
        versions.add(key)
    listed = bool(versions) and affected.database_specific.get("default_status") != "unknown"
    return Entry(
        source=source,
        ranges=tuple(ranges),
        versions=frozenset(versions),
        readable=readable,
        bounded=bool(ranges) or listed,
        text=_words(affected, usable),
    )


def _events(range_: OsvRange, package: Package, texts: dict[VersionKey, str]) -> Iterator[tuple[VersionKey, Kind]]:
    if range_.type not in {"ECOSYSTEM", "SEMVER"}:
        raise ValueError(f"a range of type {range_.type}")
    introduced = False
    for event in range_.events:
        found = [
            (text, kind)
            for text, kind in (
                (event.introduced, Kind.INTRODUCED),
                (event.fixed, Kind.FIXED),
                (event.last_affected, Kind.LAST_AFFECTED),
                (event.limit, Kind.LIMIT),
            )
            if text is not None
        ]
        if len(found) != 1:
            raise ValueError("an event has one bound")
        text, kind = found[0]
        introduced = introduced or kind is Kind.INTRODUCED
        if kind is Kind.LIMIT and text == "*":
            continue
        if kind is Kind.INTRODUCED and text == "0":
            yield FIRST, kind
            continue
        key = parse_version(text, package.grammar)
        texts.setdefault(key, text)
        yield key, kind
    if not introduced:
        raise ValueError("a range without a beginning")


def _words(affected: OsvAffected, ranges: Iterable[OsvRange]) -> str:
    said = []
    for each in ranges:
        signs = []
        for event in each.events:
            signs += [f">= {event.introduced}"] if event.introduced not in {None, "0"} else []
            signs += [f"< {event.fixed}"] if event.fixed is not None else []
            signs += [f"<= {event.last_affected}"] if event.last_affected is not None else []
        said.append(", ".join(signs) or "every version")
    if not said and affected.versions:
        said.append(", ".join(affected.versions[:3]) + (" ..." if len(affected.versions) > 3 else ""))
    return " or ".join(said) or "no versions given"


class _Placed:
    """An entry with its bounds as positions; introduced from the first version on is position -1."""

    def __init__(self, entry: Entry, bounds: Bounds) -> None:
        self.readable = entry.readable
        self.bounded = entry.bounded
        self.ranges = [
            sorted((-1 if key is FIRST else bounds.position(key), kind) for key, kind in each) for each in entry.ranges
        ]
        self.versions = frozenset(map(bounds.position, entry.versions))
        self.fixed = [place for each in self.ranges for place, kind in each if kind is Kind.FIXED]


def segments(entries: Iterable[Entry], bounds: Bounds) -> list[Segment]:
    """What the records of one advisory say together, over all positions, without those that are clear."""
    placed = [_Placed(each, bounds) for each in entries]
    own = {place for each in placed for range_ in each.ranges for place, _ in range_ if place >= 0}
    own = own.union(*(each.versions for each in placed))
    starts = sorted({0, *own, *(place + 1 for place in own)})
    found: list[tuple[int, Coverage]] = []
    for start in starts:
        coverage = _united(placed, start)
        if not found or found[-1][1] is not coverage:
            found.append((start, coverage))
    ends = [start for start, _ in found[1:]]
    return [
        Segment(start=start, end=end, coverage=coverage)
        for (start, coverage), end in zip(found, [*ends, None], strict=True)
        if coverage is not Coverage.CLEAR
    ]


def _united(entries: list[_Placed], position: int) -> Coverage:
    """The union of what all say: one that says affected is enough, and one without bounds adds nothing to others."""
    fixed = max((place for each in entries for place in each.fixed if place <= position), default=-1)
    return max((_coverage(each, position, fixed) for each in entries), default=Coverage.UNSPECIFIED)


def _coverage(entry: _Placed, position: int, fixed: int) -> Coverage:
    if position in entry.versions:
        return Coverage.AFFECTED
    found = [_walk(each, position, fixed) for each in entry.ranges]
    if not entry.readable:
        found.append(Coverage.UNREADABLE)
    elif not entry.bounded:
        found.append(Coverage.UNSPECIFIED)
    return max(found, default=Coverage.CLEAR)


def _walk(events: list[tuple[int, Kind]], position: int, fixed: int) -> Coverage:
    """The schema's walk. `fixed` is the highest fix at or below the position that any record knows."""
    coverage = Coverage.CLEAR
    limits = [place for place, kind in events if kind is Kind.LIMIT]
    if limits and position >= max(limits):
        return coverage
    for place, kind in events:
        if kind is Kind.INTRODUCED and position >= place:
            coverage = Coverage.AFFECTED
        elif kind is Kind.FIXED and position >= place:
            coverage = Coverage.CLEAR
        elif kind is Kind.LAST_AFFECTED and position > place and coverage is Coverage.AFFECTED:
            coverage = Coverage.CLEAR if fixed > place else Coverage.OPEN
    return coverage
