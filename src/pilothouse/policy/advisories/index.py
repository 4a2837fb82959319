"""The advisories of a package, by position: built when a package is first asked for, and kept."""

from collections.abc import Sequence
from itertools import count

import msgspec

from pilothouse.policy.advisories.grouping import Advisory
from pilothouse.policy.advisories.packages import Package, PackageNames
from pilothouse.policy.advisories.ranges import Bounds, Coverage, Entry, Segment, read_entry, segments
from pilothouse.policy.advisories.records import OsvAffected
from pilothouse.policy.advisories.versions import VersionKey, parse_version

NO_VERSION = -1
"""The position of a version that is not known, or not understood."""
_ABOVE_ALL = 1 << 62


class Hit(msgspec.Struct, frozen=True):
    """An advisory that is not clear over a segment.

    `number` is the hit's own among those of its package. `fix` is the position from which on the advisory is clear;
    `None` if there is none.
    """

    number: int
    advisory: int
    segment: Segment
    fix: int | None


class PackageIndex:
    """One package: its bounds, and which of its advisories are about which positions.

    Attributes:
        package: Which.
        bounds: Its bounds.
        advisories: Those that name it, the worst first.
        needs: For each of them the features that its predicate reads.
    """

    def __init__(self, package: Package, found: Sequence[tuple[Advisory, list[Entry]]], bounds: Bounds) -> None:
        self.package = package
        self.bounds = bounds
        found = sorted(found, key=lambda each: (-each[0].severity.rank, each[0].id))
        self.advisories = tuple(advisory for advisory, _ in found)
        self.needs = tuple(() if each.when is None else tuple(sorted(each.when.names())) for each in self.advisories)
        self._entries = tuple(entries for _, entries in found)
        found_segments = [segments(entries, bounds) for _, entries in found]
        last_fixes = [known[-1].end if known else None for known in found_segments]
        numbers = count()
        self._hits = [
            (each.start, _ABOVE_ALL if each.end is None else each.end, Hit(next(numbers), index, each, fix))
            for index, known in enumerate(found_segments)
            for each, fix in zip(known, _fixes(known), strict=True)
        ]
        unknown = Segment(start=NO_VERSION, end=None, coverage=Coverage.UNSPECIFIED)
        self._at: dict[int, tuple[Hit, ...]] = {
            NO_VERSION: tuple(Hit(next(numbers), index, unknown, fix) for index, fix in enumerate(last_fixes))
        }

    def position(self, version: str | None) -> int:
        """Where a version is; `NO_VERSION` if it is not known or not one of this package's grammar."""
        if version is None:
            return NO_VERSION
        try:
            return self.bounds.position(parse_version(version, self.package.grammar))
        except ValueError:
            return NO_VERSION

    def hits(self, position: int) -> tuple[Hit, ...]:
        """The advisories that are not clear at a position; all of them, as unknown, where no version is known."""
        found = self._at.get(position)
        if found is None:
            found = self._at[position] = tuple(hit for start, end, hit in self._hits if start <= position < end)
        return found

    def said(self, advisory: int) -> tuple[str, ...]:
        """What each record says of the versions, where they do not all say the same."""
        entries = self._entries[advisory]
        if len({each.text for each in entries}) < 2:
            return ()
        return tuple(f"{each.source}: {each.text}" for each in entries)


def _fixes(known: Sequence[Segment]) -> list[int | None]:
    """Where each segment's run of segments ends: what follows without a gap is not clear either."""
    fixes: list[int | None] = []
    following, fix = None, None
    for each in reversed(known):
        fix = fix if following is not None and each.end == following.start else each.end
        fixes.append(fix)
        following = each
    return fixes[::-1]


class AdvisoryIndex:
    """All advisories."""

    def __init__(self, advisories: Sequence[Advisory], names: PackageNames) -> None:
        self.names = names
        self.advisories = tuple(advisories)
        self._about: dict[str, list[tuple[Advisory, str, OsvAffected]]] = {}
        for advisory in advisories:
            for record in advisory.records:
                for affected in record.affected:
                    package = names.recorded(affected.package)
                    if package is not None:
                        self._about.setdefault(package.key, []).append((advisory, record.id, affected))
        self._packages: dict[str, PackageIndex] = {}

    def package(self, package: Package) -> PackageIndex:
        """The index of one package; an empty one where nothing is known of it."""
        found = self._packages.get(package.key)
        if found is None:
            found = self._packages[package.key] = self._build(package)
        return found

    def _build(self, package: Package) -> PackageIndex:
        texts: dict[VersionKey, str] = {}
        grouped: dict[str, tuple[Advisory, list[Entry]]] = {}
        for advisory, source, affected in self._about.get(package.key, ()):
            grouped.setdefault(advisory.id, (advisory, []))[1].append(read_entry(source, affected, package, texts))
        return PackageIndex(package, list(grouped.values()), Bounds(texts))
