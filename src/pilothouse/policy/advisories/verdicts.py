"""One verdict for each deployment: may it serve, with what left out, why, and what would clear it.

`evaluate` is pure: it may be called again for a running fleet whenever advisories, rules or waivers change.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

import msgspec

from pilothouse.model.posture import Action, Exposure, FindingState, Outcome, PosturePolicy, Requirement, Waiver
from pilothouse.policy.advisories.features import Features, FeatureTable
from pilothouse.policy.advisories.findings import Facts, Finding, Judge, Unmet
from pilothouse.policy.advisories.index import NO_VERSION, AdvisoryIndex, Hit, PackageIndex
from pilothouse.policy.advisories.versions import parse_version

STALE_FEED = "stale feed"
UNREAD_RECORDS = "unread records"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is judged: a deployment, by what matters here.

    Attributes:
        name: The deployment's name.
        package: What it runs, by any name.
        version: The pinned or installed version; `None` if it is not known.
        features: What is on and off in its launch; what is missing is unknown.
        exposure: Who can send requests to it.
    """

    name: str
    package: str
    version: str | None
    features: Features
    exposure: Exposure = Exposure.PUBLIC


class FeedState(msgspec.Struct, frozen=True, kw_only=True):
    """How far the advisories can be trusted: the day of the newest feed, and what in it could not be read."""

    date: str
    unread: tuple[str, ...] = ()

    def age_days(self, today: dt.date) -> int:
        """Days since. A date that cannot be read is as old as can be, and so is one in the future."""
        try:
            age = (today - dt.date.fromisoformat(self.date)).days
        except ValueError:
            return today.toordinal()
        return age if age >= -1 else today.toordinal()  # a day of grace for time zones


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict on one deployment.

    Attributes:
        deployment: Its name.
        package: What it was checked as.
        version: The version that was judged.
        outcome: What it may do.
        without: The features that it may not serve.
        findings: Advisories that are not clear, the worst first; those that do nothing are among them.
        unmet: Requirements that it does not meet.
        notes: What is wrong with the feed itself.
        upgrade_to: The lowest version above that clears what the outcome is for; `None` if none is known.
        feed_age_days: How old the newest feed was.
    """

    deployment: str
    package: str
    version: str | None
    outcome: Outcome
    without: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unmet: tuple[Unmet, ...] = ()
    notes: tuple[str, ...] = ()
    upgrade_to: str | None = None
    feed_age_days: int = 0

    @property
    def acting(self) -> tuple[Finding, ...]:
        """The findings that something is done about."""
        return tuple(each for each in self.findings if each.action is not Action.ALLOW)


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    """What deployments of the same version, features and waivers have in common."""

    outcome: Outcome
    without: tuple[str, ...]
    findings: tuple[Finding, ...]
    unmet: tuple[Unmet, ...]
    upgrade_to: str | None


_STRONGEST_FIRST = (Action.DENY, Action.WARN, Action.ALLOW)
_OUTCOMES = {
    Action.DENY: Outcome.ALLOWED_WITHOUT,
    Action.WARN: Outcome.WARNED,
    Action.ALLOW: Outcome.ALLOWED,
}
"""By the strongest action, where no denial is of the whole deployment."""


def evaluate(
    subjects: Iterable[Subject],
    index: AdvisoryIndex,
    features: FeatureTable,
    feed: FeedState,
    policy: PosturePolicy,
    waivers: Sequence[Waiver],
    today: dt.date,
) -> list[Verdict]:
    """The verdicts, in the order of the subjects. Waivers that have expired or cannot be read count for nothing."""
    standing = tuple(each for each in waivers if _holds(each, today))
    run = _Run(index, features, policy, today)
    age = feed.age_days(today)
    notes = _feed_notes(feed, age, policy.max_feed_age_days)
    return [run.verdict(each, standing, notes, age) for each in subjects]


def _feed_notes(feed: FeedState, age: int, longest: int) -> tuple[str, ...]:
    notes = []
    if age > longest:
        notes.append(f"{STALE_FEED}: the newest is of {feed.date}; run `pilothouse advisories sync`")
    if feed.unread:
        notes.append(f"{UNREAD_RECORDS}: {len(feed.unread)}, the first: {feed.unread[0]}")
    return tuple(notes)


def _holds(waiver: Waiver, today: dt.date) -> bool:
    try:
        return dt.date.fromisoformat(waiver.expires) >= today
    except ValueError:
        return False


_Made: TypeAlias = dict[tuple[bool | None, ...], Finding]
"""Findings of one hit by what the features are that its advisory needs."""


class _Place:
    """What deployments at one position have in common.

    Attributes:
        findings: Those of every hit; of a conditional one any, to be replaced.
        conditional: By the features that they need: (place in `findings`, hit, findings by what the features are).
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.conditional: defaultdict[tuple[str, ...], list[tuple[int, Hit, _Made]]] = defaultdict(list)


class _Run:
    """One evaluation. What deployments share is found once."""

    def __init__(self, index: AdvisoryIndex, features: FeatureTable, policy: PosturePolicy, today: dt.date) -> None:
        self._index = index
        self._features = features
        self._judge = Judge(policy.rules, features, index.names)
        self._today = today
        self._requirements: dict[str, list[Requirement]] = {}
        for each in policy.requirements:
            self._requirements.setdefault(index.names.named(each.package).key, []).append(each)
        self._bodies: dict[tuple[object, ...], _Body] = {}
        self._places: dict[tuple[object, ...], _Place] = {}
        self._made: dict[tuple[object, ...], defaultdict[int, _Made]] = {}

    def verdict(self, subject: Subject, waivers: tuple[Waiver, ...], notes: tuple[str, ...], age: int) -> Verdict:
        package = self._index.names.named(subject.package)
        if package.hosted:
            return Verdict(deployment=subject.name, package=package.key, version=None, outcome=Outcome.NOT_APPLICABLE)
        known = self._index.package(package)
        facts = Facts(
            features=self._features.completed(subject.features),
            exposure=subject.exposure,
            waivers=tuple(each for each in waivers if not each.deployments or subject.name in each.deployments),
            today=self._today,
        )
        body = self._body(known, subject.version, facts)
        outcome = body.outcome
        if notes and outcome is Outcome.ALLOWED:
            outcome = Outcome.WARNED
        return Verdict(
            deployment=subject.name,
            package=package.key,
            version=subject.version,
            outcome=outcome,
            without=body.without,
            findings=body.findings,
            unmet=body.unmet,
            notes=notes,
            upgrade_to=body.upgrade_to,
            feed_age_days=age,
        )

    def _body(self, known: PackageIndex, version: str | None, facts: Facts) -> _Body:
        key = (known.package.key, version, tuple(sorted(facts.features.items())), facts.exposure, facts.waivers)
        body = self._bodies.get(key)
        if body is None:
            body = self._bodies[key] = self._judged(known, version, facts)
        return body

    def _judged(self, known: PackageIndex, version: str | None, facts: Facts) -> _Body:
        position = known.position(version)
        found = self._found(known, position, facts)
        denying, warning, allowing = ([each for each in found if each.action is action] for action in _STRONGEST_FIRST)
        unmet = tuple(self._unmet(known, version, facts))
        strongest = _strongest([each.action for each in (*denying[:1], *warning[:1])] + [each.action for each in unmet])
        taken = {each.without for each in denying} | {each.without for each in unmet if each.action is Action.DENY}
        outcome = Outcome.DENIED if () in taken else _OUTCOMES[strongest]
        without = () if outcome is Outcome.DENIED else self._features.outermost(chain.from_iterable(taken))
        upgrade = None if position == NO_VERSION else self._upgrade(known, position, facts, found, unmet)
        return _Body(
            outcome=outcome, without=without, findings=(*denying, *warning, *allowing), unmet=unmet, upgrade_to=upgrade
        )

    def _found(self, known: PackageIndex, position: int, facts: Facts) -> list[Finding]:
        """The findings at a position, in the order of `known.hits`.

        A finding depends on the features that its advisory needs and on no others, so that most are made once.
        """
        place = self._place(known, position, facts)
        found = place.findings.copy()
        value_of = facts.features.get
        for needs, conditional in place.conditional.items():
            seen = tuple(map(value_of, needs))
            for at, hit, made in conditional:
                if seen not in made:
                    made[seen] = self._judge.finding(known, hit, facts)
                found[at] = made[seen]
        return found

    def _place(self, known: PackageIndex, position: int, facts: Facts) -> "_Place":
        key = (known.package.key, facts.exposure, facts.waivers)
        place = self._places.get((*key, position))
        if place is None:
            made_for = self._made.setdefault(key, defaultdict(dict))
            place = self._places[*key, position] = _Place()
            for at, hit in enumerate(known.hits(position)):
                needs, made = known.needs[hit.advisory], made_for[hit.number]
                if () not in made:
                    made[()] = self._judge.finding(known, hit, facts)
                place.findings.append(made[()])
                if needs:
                    place.conditional[needs].append((at, hit, made))
        return place

    def _unmet(self, known: PackageIndex, version: str | None, facts: Facts) -> Iterator[Unmet]:
        for requirement in self._requirements.get(known.package.key, ()):
            unmet = self._judge.unmet(requirement, _met(requirement, known, version), facts)
            if unmet is not None:
                yield unmet

    def _upgrade(
        self, known: PackageIndex, position: int, facts: Facts, found: list[Finding], unmet: Iterable[Unmet]
    ) -> str | None:
        """The lowest version above at which nothing acts as strongly as here.

        Left aside is what is unknown, and a feature that no version may serve: no upgrade changes that.

        An advisory that acts here is affected up to its fix without a gap, so no version below the highest of these
        fixes can do: the search jumps there and looks again.
        """
        affected = (each.action for each in found if each.state is FindingState.AFFECTED)
        strongest = _strongest(chain((each.action for each in unmet), affected))
        if strongest is Action.ALLOW:
            return None
        barring = [each for each in unmet if each.action is strongest and (each.at_least or not each.without)]
        floors = [_floor(each, known) for each in barring]
        if None in floors:
            return None
        place, text = max((each for each in floors if each is not None), default=(position, None))
        while True:
            if place != position:
                found = self._found(known, place, facts)
            fixes = {
                hit.fix
                for hit, finding in zip(known.hits(place), found, strict=True)
                if finding.action is strongest and finding.state is FindingState.AFFECTED
            }
            if None in fixes:
                return None
            if not fixes:
                return text
            place = max(fix for fix in fixes if fix is not None)
            text = known.bounds.text(place)


def _strongest(actions: Iterable[Action]) -> Action:
    found = Action.ALLOW
    for each in actions:
        if each is Action.DENY:
            return each
        if each is Action.WARN:
            found = each
    return found


def _met(requirement: Requirement, known: PackageIndex, version: str | None) -> bool | None:
    """Whether a version meets it; `None` where that cannot be told."""
    if requirement.at_least is None:
        return False
    try:
        least = parse_version(requirement.at_least, known.package.grammar)
        return None if version is None else parse_version(version, known.package.grammar) >= least
    except ValueError:
        return None


def _floor(unmet: Unmet, known: PackageIndex) -> tuple[int, str] | None:
    """Where the requirement is met, and the version to name; `None` if by none."""
    if unmet.at_least is None:
        return None
    try:
        return known.bounds.position(parse_version(unmet.at_least, known.package.grammar)), unmet.at_least
    except ValueError:
        return None
