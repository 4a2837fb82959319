"""Ranges of advisories: positions agree with OSV's own walk over versions, and order agrees with PEP 440's."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from pilothouse.policy.advisories.packages import Package
from pilothouse.policy.advisories.ranges import Bounds, Coverage, Entry, read_entry, segments
from pilothouse.policy.advisories.records import OsvAffected, OsvEvent, OsvRange
from pilothouse.policy.advisories.versions import Grammar, VersionKey, parse_version

PEP440, BUILDS = Package(key="pypi/x"), Package(key="github/x/y", grammar=Grammar.BUILD)

numbers = st.integers(0, 3)
releases = st.lists(numbers, min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
suffixes = st.sampled_from(["", "a1", "b2", "rc1", ".post1", ".post2", ".dev1", "rc1.dev2", "rc1.post1", ".post1.dev3"])
versions = st.tuples(st.sampled_from(["", "v", "1!"]), releases, suffixes).map("".join)
builds = st.integers(0, 30).map("b{}".format)


@given(versions, versions)
def test_the_order_is_that_of_pep_440(one: str, other: str) -> None:
    ours = parse_version(one, Grammar.PEP440), parse_version(other, Grammar.PEP440)
    theirs = Version(one), Version(other)
    assert (ours[0] < ours[1]) == (theirs[0] < theirs[1])
    assert (ours[0] == ours[1]) == (theirs[0] == theirs[1])


@given(versions, st.sampled_from(["+cpu", "+cu128", "+ubuntu.1"]))
def test_a_local_part_changes_nothing(version: str, local: str) -> None:
    assert parse_version(version + local, Grammar.PEP440) == parse_version(version, Grammar.PEP440)


@given(st.integers(0, 10**8), st.integers(0, 10**8))
def test_builds_are_ordered_by_their_number(one: int, other: int) -> None:
    keys = parse_version(f"b{one}", Grammar.BUILD), parse_version(f"{other}.0.0", Grammar.BUILD)
    assert (keys[0] < keys[1]) == (one < other)


@given(st.text(max_size=30))
def test_what_is_no_version_is_refused_in_one_way(text: str) -> None:
    for grammar in Grammar:
        try:
            parse_version(text, grammar)
        except ValueError:
            continue


def events_of(version: st.SearchStrategy[str]) -> st.SearchStrategy[OsvRange]:
    """Ranges with any number of stretches; fixed and last_affected never both, as the schema has it."""

    def made(kind: str, bounds: list[tuple[str, str]], limits: list[str]) -> OsvRange:
        events = [OsvEvent(introduced="0")]
        for introduced, end in bounds:
            events += [OsvEvent(introduced=introduced), OsvEvent(**{kind: end})]
        events += [OsvEvent(limit=each) for each in limits]
        return OsvRange(type="ECOSYSTEM", events=tuple(events))

    bounds = st.lists(st.tuples(version, version), max_size=3)
    return st.builds(made, st.sampled_from(["fixed", "last_affected"]), bounds, st.lists(version, max_size=2))


def affected_of(version: st.SearchStrategy[str]) -> st.SearchStrategy[OsvAffected]:
    return st.builds(
        lambda ranges, listed: OsvAffected(ranges=tuple(ranges), versions=tuple(listed)),
        st.lists(events_of(version), max_size=2),
        st.lists(version, max_size=3),
    )


def walk(affected: OsvAffected, version: str, key: Callable[[str], VersionKey]) -> bool:
    """The schema's algorithm, as it is written there, over versions."""
    at = key(version)
    if any(key(each) == at for each in affected.versions):
        return True
    for each in affected.ranges:
        limits = [event.limit for event in each.events if event.limit is not None]
        if limits and not any(at < key(limit) for limit in limits):
            continue
        vulnerable = False

        def place(event: OsvEvent) -> tuple[VersionKey, int]:
            # Of one version: fixed before introduced, so that a version introduced again counts.
            if event.introduced is not None:
                return () if event.introduced == "0" else key(event.introduced), 1
            return key(event.fixed or event.last_affected or ""), 0

        for event in sorted((event for event in each.events if event.limit is None), key=place):
            start, fixed, last = event.introduced, event.fixed, event.last_affected
            if start is not None and (start == "0" or at >= key(start)):
                vulnerable = True
            if (fixed is not None and at >= key(fixed)) or (last is not None and at > key(last)):
                vulnerable = False
        if vulnerable:
            return True
    return False


def coverage(entries: list[OsvAffected], version: str, package: Package) -> Coverage:
    texts: dict[VersionKey, str] = {}
    read: list[Entry] = [read_entry("one", each, package, texts) for each in entries]
    bounds = Bounds(texts)
    at = bounds.position(parse_version(version, package.grammar))
    found = [each for each in segments(read, bounds) if each.start <= at and (each.end is None or at < each.end)]
    assert len(found) <= 1
    return found[0].coverage if found else Coverage.CLEAR


@given(affected_of(versions), versions)
def test_positions_agree_with_the_schema_for_pep_440(affected: OsvAffected, version: str) -> None:
    expected = walk(affected, version, lambda text: parse_version(text, Grammar.PEP440))
    assert (coverage([affected], version, PEP440) is Coverage.AFFECTED) == expected


@given(affected_of(builds), builds)
def test_positions_agree_with_the_schema_for_builds(affected: OsvAffected, version: str) -> None:
    expected = walk(affected, version, lambda text: parse_version(text, Grammar.BUILD))
    assert (coverage([affected], version, BUILDS) is Coverage.AFFECTED) == expected


@given(st.lists(affected_of(builds), min_size=1, max_size=3), builds)
def test_of_several_records_the_widest_counts(records: list[OsvAffected], version: str) -> None:
    alone = [coverage([each], version, BUILDS) for each in records]
    together = coverage(records, version, BUILDS)
    assert (together is Coverage.AFFECTED) == (Coverage.AFFECTED in alone)


@given(affected_of(builds), builds, st.sampled_from(["nonsense", "", "b-1", "1.2.3"]))
def test_a_bound_that_cannot_be_read_is_never_clear(affected: OsvAffected, version: str, bound: str) -> None:
    broken = OsvRange(type="ECOSYSTEM", events=(OsvEvent(introduced="0"), OsvEvent(fixed=bound)))
    found = coverage([OsvAffected(ranges=(*affected.ranges, broken), versions=affected.versions)], version, BUILDS)
    assert found in {Coverage.AFFECTED, Coverage.UNREADABLE}
