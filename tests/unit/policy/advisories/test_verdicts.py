import pytest

from advisory_world import FEATURES, NAMES, TODAY, judged, record, severe
from pilothouse.model.posture import (
    Action,
    AdvisoryRule,
    Exposure,
    FindingState,
    Outcome,
    PosturePolicy,
    Requirement,
    Severity,
    Waiver,
)
from pilothouse.policy.advisories.features import OverlayEntry, Predicate
from pilothouse.policy.advisories.findings import UNMATCHED
from pilothouse.policy.advisories.grouping import unite
from pilothouse.policy.advisories.index import AdvisoryIndex
from pilothouse.policy.advisories.verdicts import FeedState, Subject, evaluate

DENY = AdvisoryRule(name="all", action=Action.DENY)
HIGH = AdvisoryRule(name="high", action=Action.DENY, min_severity=Severity.HIGH)


def overlay(*names: str, id_: str = "CVE-1") -> list[OverlayEntry]:
    when = Predicate(feature=names[0]) if len(names) == 1 else Predicate(all=tuple(Predicate(feature=n) for n in names))
    return [OverlayEntry(ids=(id_,), when=when, reason="because")]


def test_nothing_known_is_allowed() -> None:
    found = judged([])
    assert (found.outcome, found.findings, found.upgrade_to, found.feed_age_days) == (Outcome.ALLOWED, (), None, 1)


def test_without_a_rule_a_finding_is_warned_of() -> None:
    found = judged([record("CVE-1", ("0", "2.0"))])
    assert found.outcome is Outcome.WARNED
    assert found.findings[0].rule == UNMATCHED
    assert found.upgrade_to == "2.0"


def test_a_denied_deployment_says_why_and_what_clears_it() -> None:
    found = judged([record("CVE-1", ("0", "2.0"), summary="bad")], rules=[DENY])
    assert (found.outcome, found.without, found.upgrade_to) == (Outcome.DENIED, (), "2.0")
    (finding,) = found.findings
    assert (finding.id, finding.rule, finding.fixed, finding.summary) == ("CVE-1", "all", "2.0", "bad")


def test_the_smallest_upgrade_jumps_over_what_is_affected_above() -> None:
    records = [
        record("CVE-1", ("0", "2.0")),
        record("CVE-2", ("1.5", "3.0")),
        record("CVE-3", ("3.1", "4.0")),
    ]
    assert judged(records, "1.0", rules=[DENY]).upgrade_to == "3.0"
    assert judged(records, "3.5", rules=[DENY]).upgrade_to == "4.0"


def test_no_upgrade_is_named_where_no_fix_is_known() -> None:
    found = judged([record("CVE-1", ("0", "2.0"), last=True), record("CVE-2", ("0", "1.5"))], rules=[DENY])
    assert found.upgrade_to is None
    assert [each.fixed for each in found.findings] == [None, "1.5"]


def test_above_the_last_known_version_without_a_fix_is_unknown() -> None:
    (finding,) = judged([record("CVE-1", ("0", "2.0"), last=True)], "2.1", rules=[DENY]).findings
    assert finding.state is FindingState.UNKNOWN
    assert finding.action is Action.WARN


def test_the_first_rule_that_matches_decides() -> None:
    allow = AdvisoryRule(name="mine", action=Action.ALLOW, min_severity=Severity.HIGH)
    bad = [record("CVE-1", ("0", "2.0"), **severe("HIGH"))]
    assert judged(bad, rules=[allow, HIGH]).outcome is Outcome.ALLOWED
    assert judged(bad, rules=[HIGH, allow]).outcome is Outcome.DENIED


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (AdvisoryRule(name="r", action=Action.DENY, package="engine-cpu"), True),
        (AdvisoryRule(name="r", action=Action.DENY, package="other"), False),
        (AdvisoryRule(name="r", action=Action.DENY, min_severity=Severity.HIGH), True),
        (AdvisoryRule(name="r", action=Action.DENY, min_severity=Severity.CRITICAL), False),
        (AdvisoryRule(name="r", action=Action.DENY, min_age_days=29), True),
        (AdvisoryRule(name="r", action=Action.DENY, min_age_days=30), False),
        (AdvisoryRule(name="r", action=Action.DENY, exposures=(Exposure.PUBLIC,)), True),
        (AdvisoryRule(name="r", action=Action.DENY, exposures=(Exposure.LOCAL, Exposure.INTERNAL)), False),
        (AdvisoryRule(name="r", action=Action.DENY, feature="connector"), True),
        (AdvisoryRule(name="r", action=Action.DENY, feature="tools"), False),
        (AdvisoryRule(name="r", action=Action.DENY, states=(FindingState.UNKNOWN,)), False),
    ],
)
def test_what_a_rule_matches(rule: AdvisoryRule, matches: bool) -> None:
    bad = record("CVE-1", ("0", "2.0"), published="2026-06-01T00:00:00Z", **severe("HIGH"))
    found = judged([bad], rules=[rule], overlay=overlay("connector"), features={"connector": True})
    assert (found.outcome is Outcome.DENIED) == matches


def test_an_advisory_without_a_date_counts_as_old() -> None:
    old = AdvisoryRule(name="old", action=Action.DENY, min_age_days=10_000)
    assert judged([record("CVE-1", ("0", "2.0"))], rules=[old]).outcome is Outcome.DENIED


# Features


def test_what_the_gateway_can_withhold_is_all_that_is_taken_away() -> None:
    for features in ({"images": True}, {}):
        found = judged([record("CVE-1", ("0", "2.0"))], rules=[DENY], overlay=overlay("images"), features=features)
        assert (found.outcome, found.without) == (Outcome.ALLOWED_WITHOUT, ("images",))


def test_a_feature_that_cannot_be_withheld_takes_the_deployment() -> None:
    found = judged([record("CVE-1", ("0", "2.0"))], rules=[DENY], overlay=overlay("connector"))
    assert found.outcome is Outcome.DENIED
    off = judged(
        [record("CVE-1", ("0", "2.0"))], rules=[DENY], overlay=overlay("connector"), features={"connector": False}
    )
    assert off.outcome is Outcome.ALLOWED
    assert off.findings[0].state is FindingState.AFFECTED_IF_FEATURE
    assert "off: connector" in off.findings[0].reason


def test_withholding_one_of_two_needs_is_enough() -> None:
    found = judged([record("CVE-1", ("0", "2.0"))], rules=[DENY], overlay=overlay("connector", "tools"))
    assert found.without == ("tools",)


def test_either_of_two_needs_both_withheld() -> None:
    either = [
        OverlayEntry(ids=("CVE-1",), when=Predicate(feature="tools"), reason=""),
        OverlayEntry(ids=("CVE-1",), when=Predicate(feature="video"), reason=""),
    ]
    assert judged([record("CVE-1", ("0", "2.0"))], rules=[DENY], overlay=either).without == ("tools", "video")


def test_a_whole_covers_its_parts() -> None:
    records = [record("CVE-1", ("0", "2.0")), record("CVE-2", ("0", "2.0"))]
    both = [*overlay("video"), *overlay("images", id_="CVE-2")]
    assert judged(records, rules=[DENY], overlay=both).without == ("images",)


def test_one_denial_of_the_whole_outweighs_what_is_withheld() -> None:
    records = [record("CVE-1", ("0", "2.0")), record("CVE-2", ("0", "2.0"))]
    found = judged(records, rules=[DENY], overlay=overlay("images"))
    assert (found.outcome, found.without) == (Outcome.DENIED, ())


def test_a_rule_may_act_on_what_is_off() -> None:
    rule = AdvisoryRule(name="r", action=Action.WARN, states=(FindingState.AFFECTED_IF_FEATURE,))
    bad = [record("CVE-1", ("0", "2.0"))]
    found = judged(bad, rules=[rule], overlay=overlay("images"), features={"images": False})
    assert (found.outcome, found.findings[0].rule) == (Outcome.WARNED, "r")


def test_an_advisory_without_bounds_does_not_matter_where_its_feature_is_off() -> None:
    warn = AdvisoryRule(name="unknown", action=Action.WARN, states=(FindingState.UNKNOWN,))
    on = judged([record("CVE-1")], rules=[warn], overlay=overlay("images"))
    off = judged([record("CVE-1")], rules=[warn], overlay=overlay("images"), features={"images": False})
    assert (on.outcome, off.outcome) == (Outcome.WARNED, Outcome.ALLOWED)


# Requirements

NEEDS = Requirement(name="images-2.0", package="engine", feature="images", at_least="2.0", reason="because")


def test_a_requirement_withholds_its_feature_until_it_is_met() -> None:
    below = judged([], "1.9", requirements=[NEEDS])
    assert (below.outcome, below.without, below.upgrade_to) == (Outcome.ALLOWED_WITHOUT, ("images",), "2.0")
    assert judged([], "2.0", requirements=[NEEDS]).outcome is Outcome.ALLOWED
    assert judged([], "1.9", requirements=[NEEDS], features={"images": False}).outcome is Outcome.ALLOWED
    assert judged([], "nightly", requirements=[NEEDS]).outcome is Outcome.WARNED


def test_a_requirement_without_a_version_is_never_met() -> None:
    never = Requirement(name="never", package="engine-cpu", reason="because")
    found = judged([], "99", requirements=[never])
    assert (found.outcome, found.upgrade_to) == (Outcome.DENIED, None)


def test_a_requirement_on_what_may_be_on_warns() -> None:
    connector = Requirement(name="no-connector", package="engine", feature="connector", reason="because")
    assert judged([], requirements=[connector]).outcome is Outcome.WARNED
    assert judged([], requirements=[connector], features={"connector": True}).outcome is Outcome.DENIED


def test_the_upgrade_meets_requirements_and_clears_advisories() -> None:
    found = judged([record("CVE-1", ("1.8", "2.5"))], "1.5", rules=[DENY], requirements=[NEEDS])
    assert found.upgrade_to == "2.5"


def test_a_feature_that_no_version_may_serve_hides_no_fix() -> None:
    never = Requirement(name="text-only", package="engine", feature="images", reason="because")
    found = judged([record("CVE-1", ("0", "2.0"))], rules=[DENY], requirements=[never])
    assert (found.outcome, found.upgrade_to) == (Outcome.DENIED, "2.0")
    assert judged([], rules=[DENY], requirements=[never]).upgrade_to is None


# Waivers


def waiver(covers: str, expires: str = "2026-06-30", *deployments: str) -> Waiver:
    return Waiver(covers=covers, owner="ana", reason="mitigated", expires=expires, deployments=deployments)


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (waiver("GHSA-1"), Outcome.ALLOWED),
        (waiver("CVE-1", "2026-06-30", "one"), Outcome.ALLOWED),
        (waiver("CVE-1", "2026-06-29"), Outcome.DENIED),
        (waiver("CVE-1", "soon"), Outcome.DENIED),
        (waiver("CVE-1", "2027-01-01", "another"), Outcome.DENIED),
        (waiver("CVE-2"), Outcome.DENIED),
    ],
)
def test_waivers(given: Waiver, outcome: Outcome) -> None:
    found = judged([record("CVE-1", ("0", "2.0"), aliases=("GHSA-1",))], rules=[DENY], waivers=[given])
    assert found.outcome is outcome
    assert found.findings[0].waived_by == ("ana" if outcome is Outcome.ALLOWED else None)


def test_a_waiver_of_a_requirement() -> None:
    found = judged([], "1.0", requirements=[NEEDS], waivers=[waiver("images-2.0")])
    assert (found.outcome, found.without, found.unmet[0].waived_by) == (Outcome.ALLOWED, (), "ana")


# The feed


@pytest.mark.parametrize(
    ("date", "outcome"),
    [
        ("2026-06-30", Outcome.ALLOWED),
        ("2026-05-31", Outcome.ALLOWED),
        ("2026-05-30", Outcome.WARNED),
        ("never", Outcome.WARNED),
        ("2027-01-01", Outcome.WARNED),
    ],
)
def test_a_stale_feed_is_no_clean_bill(date: str, outcome: Outcome) -> None:
    assert judged([], feed=FeedState(date=date)).outcome is outcome


def test_records_that_could_not_be_read_are_no_clean_bill() -> None:
    found = judged([], feed=FeedState(date="2026-06-30", unread=("a.json: not JSON",)))
    assert found.outcome is Outcome.WARNED
    assert "a.json: not JSON" in found.notes[0]


# Others


def test_the_same_findings_on_a_version_that_is_not_known() -> None:
    found = judged([record("CVE-1", ("0", "2.0"))], None, rules=[DENY])
    assert (found.outcome, found.upgrade_to) == (Outcome.WARNED, None)
    assert (found.findings[0].state, found.findings[0].fixed) == (FindingState.UNKNOWN, "2.0")


def test_what_sources_say_is_shown_where_they_differ() -> None:
    records = [record("CVE-1", ("0.7", "2.0")), record("GHSA-1", ("0", "2.0"), aliases=("CVE-1",))]
    (finding,) = judged(records, "0.5").findings
    assert finding.state is FindingState.AFFECTED
    assert finding.sources == ("CVE-1: >= 0.7, < 2.0", "GHSA-1: < 2.0")


def test_the_worst_come_first_and_what_does_nothing_last() -> None:
    records = [
        record("CVE-1", ("0", "2.0"), **severe("LOW")),
        record("CVE-2", ("0", "2.0"), **severe("CRITICAL")),
        record("CVE-3", ("0", "2.0"), **severe("CRITICAL")),
    ]
    found = judged(records, rules=[HIGH], overlay=overlay("images", id_="CVE-3"), features={"images": False})
    assert [each.id for each in found.findings] == ["CVE-2", "CVE-1", "CVE-3"]
    assert [each.id for each in found.acting] == ["CVE-2", "CVE-1"]


def test_hosted_engines_are_not_judged() -> None:
    assert judged([], package="cloud").outcome is Outcome.NOT_APPLICABLE


def test_each_of_many_is_judged_by_what_it_is() -> None:
    index = AdvisoryIndex(unite([record("CVE-1", ("0", "2.0"))], overlay("connector")), NAMES)
    subjects = [
        Subject(name=f"{version}-{on}", package="engine", version=version, features={"connector": on})
        for version in ("1.0", "2.0")
        for on in (True, False)
    ]
    found = evaluate(subjects, index, FEATURES, FeedState(date="2026-06-30"), PosturePolicy(rules=(DENY,)), (), TODAY)
    assert {each.deployment: each.outcome for each in found} == {
        "1.0-True": Outcome.DENIED,
        "1.0-False": Outcome.ALLOWED,
        "2.0-True": Outcome.ALLOWED,
        "2.0-False": Outcome.ALLOWED,
    }
