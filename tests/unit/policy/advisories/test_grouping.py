from advisory_world import record, severe
from pilothouse.model.posture import Severity
from pilothouse.policy.advisories.features import OverlayEntry, Predicate
from pilothouse.policy.advisories.grouping import unite


def test_aliases_are_symmetric_and_transitive() -> None:
    united = unite(
        [
            record("PYSEC-1", aliases=("GHSA-1",)),
            record("CVE-1"),
            record("GHSA-1", aliases=("CVE-1",)),
            record("CVE-2"),
        ]
    )
    assert [each.ids for each in united] == [("CVE-1", "GHSA-1", "PYSEC-1"), ("CVE-2",)]
    assert united[0].id == "CVE-1"


def test_the_united_keep_the_worst_severity_and_the_earliest_day() -> None:
    (one,) = unite(
        [
            record("CVE-1", **severe("LOW"), published="2026-03-02T10:00:00Z"),
            record("GHSA-1", aliases=("CVE-1",), **severe("HIGH"), published="2026-03-01T10:00:00Z", summary="words"),
        ]
    )
    assert (one.severity, one.published, one.summary) == (Severity.HIGH, "2026-03-01", "words")


def test_withdrawn_records_are_left_out_and_unite_nothing() -> None:
    withdrawn = record("PYSEC-1", aliases=("CVE-1", "CVE-2"), withdrawn="2026-02-01T00:00:00Z")
    assert [each.ids for each in unite([withdrawn, record("CVE-1"), record("CVE-2")])] == [("CVE-1",), ("CVE-2",)]


def test_of_one_source_the_newest_record_counts_and_of_several_all_do() -> None:
    old = record("CVE-1", ("0", "1.0"), source="osv")
    new = record("CVE-1", ("0", "2.0"), source="osv", modified="2026-02-01T00:00:00Z")
    other = record("CVE-1", ("0", "3.0"), source="cve")
    assert unite([new, old])[0].records == (new,)
    assert unite([old, new, other])[0].records == (new, other)


def test_a_record_that_was_withdrawn_later_is_gone() -> None:
    withdrawn = record("CVE-1", modified="2026-02-01T00:00:00Z", withdrawn="2026-02-01T00:00:00Z")
    assert unite([record("CVE-1"), withdrawn]) == []
    assert unite([record("CVE-1", source="a copy"), withdrawn]) == []
    newer = record("CVE-1", source="a copy", modified="2026-03-01T00:00:00Z")
    assert [each.records for each in unite([newer, withdrawn])] == [(newer,)]


def test_the_overlay_finds_an_advisory_by_any_of_its_ids() -> None:
    images = OverlayEntry(ids=("GHSA-1",), when=Predicate(feature="images"), reason="because", reads=("x", "y"))
    tools = OverlayEntry(ids=("CVE-1", "GHSA-1"), when=Predicate(feature="tools"), reason="and")
    aliased = record("CVE-1", aliases=("GHSA-1",))
    (one,) = unite([aliased], [images])
    assert one.when == Predicate(feature="images")
    assert one.why == ("because (told by x, y)",)
    (both,) = unite([aliased], [images, tools])
    assert str(both.when) == "tools or images"
    assert both.why == ("and", "because (told by x, y)")
    assert unite([record("CVE-9")], [images])[0].when is None
