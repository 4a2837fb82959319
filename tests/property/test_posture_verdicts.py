"""Verdicts: what is known narrows and never widens, and an upgrade that is named clears what it is named for."""

from hypothesis import given
from hypothesis import strategies as st

from advisory_world import FEATURES, judged, record, severe
from pilothouse.model.posture import Action, AdvisoryRule, FindingState, Outcome, Requirement, Severity
from pilothouse.policy.advisories.features import OverlayEntry, Predicate
from pilothouse.policy.advisories.records import OsvRecord
from pilothouse.policy.advisories.verdicts import Verdict

RULES = (
    AdvisoryRule(name="critical", action=Action.DENY, min_severity=Severity.CRITICAL),
    AdvisoryRule(name="affected", action=Action.WARN, min_severity=Severity.LOW),
    AdvisoryRule(name="unknown", action=Action.WARN, states=(FindingState.UNKNOWN,)),
    AdvisoryRule(name="rest", action=Action.ALLOW),
)
REQUIREMENTS = (
    Requirement(name="images-5", package="engine", feature="images", at_least="5", reason="because"),
    Requirement(name="no-connector", package="engine", feature="connector", reason="because"),
)
NAMES = tuple(each.name for each in FEATURES)

versions = st.integers(1, 12).map(str)
features = st.dictionaries(st.sampled_from(NAMES), st.booleans())
predicates = st.recursive(
    st.sampled_from(NAMES).map(lambda name: Predicate(feature=name)),
    lambda inner: st.lists(inner, min_size=1, max_size=2).flatmap(
        lambda parts: st.sampled_from([Predicate(all=tuple(parts)), Predicate(any=tuple(parts))])
    ),
    max_leaves=3,
)


@st.composite
def records(draw: st.DrawFn) -> list[OsvRecord]:
    made = []
    for number in range(draw(st.integers(0, 5))):
        bounds = draw(st.lists(st.tuples(versions, versions), max_size=2))
        word = draw(st.sampled_from(["LOW", "CRITICAL", "other"]))
        made.append(record(f"CVE-{number}", *bounds, last=draw(st.booleans()), **severe(word)))
    return made


@st.composite
def overlays(draw: st.DrawFn) -> list[OverlayEntry]:
    numbers = draw(st.sets(st.integers(0, 4)))
    return [OverlayEntry(ids=(f"CVE-{n}",), when=draw(predicates), reason="because") for n in sorted(numbers)]


def verdict(
    found: list[OsvRecord], version: str, known: dict[str, bool], overlay: list[OverlayEntry], *, required: bool = True
) -> Verdict:
    requirements = REQUIREMENTS if required else ()
    return judged(found, version, rules=RULES, requirements=requirements, overlay=overlay, features=known)


@given(records(), versions, features, overlays())
def test_the_overlay_never_makes_worse(
    found: list[OsvRecord], version: str, known: dict[str, bool], overlay: list[OverlayEntry]
) -> None:
    assert verdict(found, version, known, overlay).outcome.rank <= verdict(found, version, known, []).outcome.rank


@given(records(), versions, features, overlays(), st.sampled_from(NAMES))
def test_knowing_that_a_feature_is_off_never_makes_worse(
    found: list[OsvRecord], version: str, known: dict[str, bool], overlay: list[OverlayEntry], off: str
) -> None:
    unknown = {name: on for name, on in known.items() if name != off and FEATURES.without({}, off).get(name) is None}
    before = verdict(found, version, unknown, overlay)
    after = verdict(found, version, FEATURES.without(unknown, off), overlay)
    assert after.outcome.rank <= before.outcome.rank


@given(records(), versions, features, overlays())
def test_without_what_is_withheld_nothing_denies(
    found: list[OsvRecord], version: str, known: dict[str, bool], overlay: list[OverlayEntry]
) -> None:
    judged_now = verdict(found, version, known, overlay)
    if judged_now.outcome is Outcome.ALLOWED_WITHOUT:
        left = dict(known)
        for name in judged_now.without:
            left = FEATURES.without(left, name)
        assert verdict(found, version, left, overlay).outcome.rank < Outcome.ALLOWED_WITHOUT.rank


@given(records(), versions, features, overlays())
def test_the_upgrade_is_above_and_is_the_lowest_that_clears(
    found: list[OsvRecord], version: str, known: dict[str, bool], overlay: list[OverlayEntry]
) -> None:
    def affected(at: str) -> set[Action]:
        now = verdict(found, at, known, overlay, required=False)
        return {each.action for each in now.findings if each.state is FindingState.AFFECTED}

    now = verdict(found, version, known, overlay, required=False)
    acting = affected(version) - {Action.ALLOW}
    if not acting:
        assert now.upgrade_to is None
        return
    strongest = Action.DENY if Action.DENY in acting else Action.WARN
    above = [str(each) for each in range(int(version) + 1, 14)]
    clear = [each for each in above if strongest not in affected(each)]
    if now.upgrade_to is not None:
        assert now.upgrade_to == clear[0]
