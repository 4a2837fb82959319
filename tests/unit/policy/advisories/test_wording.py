from advisory_world import judged, record, severe
from pilothouse.model.posture import Action, AdvisoryRule, Requirement, Severity
from pilothouse.policy.advisories.features import OverlayEntry, Predicate
from pilothouse.policy.advisories.verdicts import FeedState
from pilothouse.policy.advisories.wording import denial, headline, reasons

DENY = AdvisoryRule(name="critical", action=Action.DENY, min_severity=Severity.CRITICAL)
WITHHOLD = AdvisoryRule(name="images", action=Action.DENY, feature="images")
IMAGES = OverlayEntry(ids=("CVE-3",), when=Predicate(feature="images"), reason="because")
NEVER = Requirement(name="no-connector", package="engine", feature="connector", reason="not cleared")
RECORDS = [
    record("CVE-1", ("0", "2.0"), summary="slow", **severe("LOW")),
    record("CVE-2", ("0", "3.0"), summary="open", **severe("CRITICAL")),
    record("CVE-3", ("0", "4.0"), last=True, summary="blur"),
]


def test_every_reason_in_words_the_strongest_first() -> None:
    found = judged(
        RECORDS, rules=[DENY, WITHHOLD], requirements=[NEVER], overlay=[IMAGES], feed=FeedState(date="2026-01-01")
    )
    assert headline(found) == "denied; engine 1.0"
    lines = reasons(found)
    assert lines[1] == (
        "takes images CVE-3 (unknown): blur; "
        "the version is in range, and what it needs is not known to be off: images; "
        "no fixed version known; rule 'images'"
    )
    assert (*lines[:1], *lines[2:]) == (
        "denies CVE-2 (critical): open; the version is in range; fixed in 3.0; rule 'critical'",
        "warns CVE-1 (low): slow; the version is in range; fixed in 2.0; rule 'none'",
        "warns no-connector: not cleared; met by no version",
        "stale feed: the newest is of 2026-01-01; run `pilothouse advisories sync`",
    )
    assert denial(found) == f"one is denied; engine 1.0\n  {lines[0]}"


def test_headlines() -> None:
    assert headline(judged([], None)) == "allowed; engine"
    assert headline(judged(RECORDS[:1])) == "warned; engine 1.0, cleared by 2.0"
    needs = Requirement(name="images-2.0", package="engine", feature="images", at_least="2.0", reason="because")
    found = judged([], requirements=[needs])
    assert headline(found) == "allowed without images; engine 1.0, cleared by 2.0"
    assert reasons(found) == ("takes images images-2.0: because; met from 2.0 on",)
    assert headline(judged([], package="cloud")) == "not applicable; cloud"
