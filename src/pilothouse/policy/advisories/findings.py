"""What one advisory means for one deployment, and what the rules say about it."""

import datetime as dt
from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from pilothouse.model.posture import Action, AdvisoryRule, Exposure, FindingState, Requirement, Severity, Waiver
from pilothouse.policy.advisories.features import Features, FeatureTable, Predicate
from pilothouse.policy.advisories.grouping import Advisory
from pilothouse.policy.advisories.index import Hit, PackageIndex
from pilothouse.policy.advisories.packages import PackageNames
from pilothouse.policy.advisories.ranges import Coverage

UNMATCHED = "none"
"""What a finding names as its rule when none matched; it is then warned of."""
FEATURE_OFF = "what it needs is off"
"""What a finding names as its rule when its versions do not matter, since the feature that it needs is off."""

_REASONS = {
    Coverage.UNSPECIFIED: "its records do not say whether this version is affected",
    Coverage.OPEN: "above the last version known to be affected",
    Coverage.UNREADABLE: "a bound of its versions cannot be read",
}
_NO_VERSION = "the version is not known, or not written as this package writes versions"
_MOST_WITHHELD = 3


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An advisory that is not clear for a deployment.

    Attributes:
        id: The advisory.
        ids: All its ids.
        state: What it means.
        severity: How bad it is.
        summary: What it is.
        reason: Why the state is what it is.
        needs: The features it needs to bite, in words; `None`: none that we know of.
        why: Why it is said to need them, and what in a launch tells.
        fixed: The version that clears it; `None` if none is known.
        sources: What each record says of the versions, where they differ. The widest counts.
        rule: The rule that decided, or `UNMATCHED`.
        action: What it decided.
        without: What `DENY` takes away; empty when that is the whole deployment.
        waived_by: Who answers for the waiver that allowed it.
    """

    id: str
    ids: tuple[str, ...]
    state: FindingState
    severity: Severity
    summary: str
    reason: str
    needs: str | None
    why: tuple[str, ...]
    fixed: str | None
    sources: tuple[str, ...]
    rule: str
    action: Action
    without: tuple[str, ...] = ()
    waived_by: str | None = None


class Unmet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A requirement that a deployment does not meet; fields as those of a finding."""

    rule: str
    action: Action
    reason: str
    without: tuple[str, ...] = ()
    at_least: str | None = None
    waived_by: str | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What an advisory is held against beside the version."""

    features: Features
    exposure: Exposure
    waivers: tuple[Waiver, ...]
    today: dt.date


class Judge:
    """Applies rules, in order, to findings."""

    def __init__(self, rules: Sequence[AdvisoryRule], features: FeatureTable, names: PackageNames) -> None:
        self._features = features
        self._rules = [(each, None if each.package is None else names.named(each.package).key) for each in rules]

    def finding(self, index: PackageIndex, hit: Hit, facts: Facts) -> Finding:
        """The finding of a hit."""
        advisory = index.advisories[hit.advisory]
        holds = True if advisory.when is None else advisory.when.holds(facts.features)
        state, reason = _state(advisory, hit, holds, facts.features)
        rule, action = self._rule(advisory, index.package.key, state, facts)
        if holds is False and state is FindingState.UNKNOWN:
            rule, action = FEATURE_OFF, Action.ALLOW
        waiver = _waiver(facts, *advisory.ids) if action is not Action.ALLOW else None
        denied = action is Action.DENY and waiver is None
        return Finding(
            id=advisory.id,
            ids=advisory.ids,
            state=state,
            severity=advisory.severity,
            summary=advisory.summary,
            reason=reason,
            needs=None if advisory.when is None else str(advisory.when),
            why=advisory.why,
            fixed=None if hit.fix is None else index.bounds.text(hit.fix),
            sources=index.said(hit.advisory),
            rule=rule,
            action=Action.ALLOW if waiver else action,
            without=self._without(advisory.when, facts.features) if denied and advisory.when else (),
            waived_by=waiver.owner if waiver else None,
        )

    def unmet(self, requirement: Requirement, met: bool | None, facts: Facts) -> Unmet | None:
        """What an unmet requirement does. `met` is `None` where the version is not known."""
        on = True if requirement.feature is None else facts.features.get(requirement.feature)
        if met or on is False:
            return None
        without: tuple[str, ...] = ()
        if requirement.feature is not None and self._features.withholdable(requirement.feature):
            without = (requirement.feature,)
        certain = met is False and (on is True or bool(without))
        waiver = _waiver(facts, requirement.name)
        action = Action.DENY if certain else Action.WARN
        return Unmet(
            rule=requirement.name,
            action=Action.ALLOW if waiver else action,
            reason=requirement.reason,
            without=without if certain and not waiver else (),
            at_least=requirement.at_least,
            waived_by=waiver.owner if waiver else None,
        )

    def _rule(self, advisory: Advisory, package: str, state: FindingState, facts: Facts) -> tuple[str, Action]:
        needed = frozenset[str]() if advisory.when is None else advisory.when.names()
        for rule, of in self._rules:
            if (
                state in rule.states
                and (of is None or of == package)
                and (rule.feature is None or rule.feature in needed)
                and advisory.severity.rank >= rule.min_severity.rank
                and (not rule.exposures or facts.exposure in rule.exposures)
                and _age_days(advisory, facts.today) >= rule.min_age_days
            ):
                return rule.name, rule.action
        return UNMATCHED, Action.ALLOW if state is FindingState.AFFECTED_IF_FEATURE else Action.WARN

    def _without(self, when: Predicate, features: Features) -> tuple[str, ...]:
        """The fewest features whose requests must be held back for the predicate not to hold; empty if none do."""
        candidates = sorted(
            name for name in when.names() if self._features.withholdable(name) and features.get(name) is not False
        )
        for chosen in self._choices(candidates):
            left = dict(features)
            for name in chosen:
                left = self._features.without(left, name)
            if when.holds(left) is False:
                return chosen
        return ()

    def _choices(self, candidates: list[str]) -> Iterator[tuple[str, ...]]:
        for count in range(1, min(len(candidates), _MOST_WITHHELD) + 1):
            yield from combinations(candidates, count)


def _state(advisory: Advisory, hit: Hit, holds: bool | None, features: Features) -> tuple[FindingState, str]:
    if hit.segment.coverage is not Coverage.AFFECTED:
        is_nowhere = hit.segment.start < 0
        return FindingState.UNKNOWN, _NO_VERSION if is_nowhere else _REASONS[hit.segment.coverage]
    if advisory.when is None:
        return FindingState.AFFECTED, "the version is in range"
    if holds is False:
        off = ", ".join(sorted(name for name in advisory.when.names() if features.get(name) is False))
        return FindingState.AFFECTED_IF_FEATURE, f"the version is in range; off: {off}"
    how = "on" if holds else "not known to be off"
    return FindingState.AFFECTED, f"the version is in range, and what it needs is {how}: {advisory.when}"


def _age_days(advisory: Advisory, today: dt.date) -> int:
    """Days since publication. Without a readable date it is as old as can be."""
    try:
        return (today - dt.date.fromisoformat(advisory.published or "")).days
    except ValueError:
        return today.toordinal()


def _waiver(facts: Facts, *names: str) -> Waiver | None:
    return next((each for each in facts.waivers if each.covers in names), None)
