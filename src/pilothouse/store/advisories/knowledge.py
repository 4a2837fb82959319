"""Everything that posture is judged by, gathered from where it is kept, and the verdicts on some deployments."""

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.model.posture import PosturePolicy, PostureSpec, Waiver
from pilothouse.policy.advisories.grouping import unite
from pilothouse.policy.advisories.index import AdvisoryIndex
from pilothouse.policy.advisories.records import Snapshot
from pilothouse.policy.advisories.verdicts import FeedState, Subject, Verdict, evaluate
from pilothouse.store.advisories.feed_directory import FeedDirectory, FileChange, changes_of
from pilothouse.store.advisories.local import AdvisoryStore, GivenWaiver
from pilothouse.store.advisories.shipped import (
    feature_table,
    package_names,
    shipped_overlay,
    shipped_policy,
    shipped_snapshot,
)

Fingerprint: TypeAlias = tuple[FileChange, ...]
"""Another one means that something was changed."""


class Knowledge(msgspec.Struct, frozen=True):
    """Advisories, how far they can be trusted, the policy, and the waivers, expired ones too."""

    index: AdvisoryIndex
    feed: FeedState
    policy: PosturePolicy
    waivers: tuple[Waiver, ...]

    def verdicts(self, subjects: Iterable[Subject], today: dt.date) -> list[Verdict]:
        """The verdicts on these, in their order."""
        return evaluate(subjects, self.index, feature_table(), self.feed, self.policy, self.waivers, today)


def gather(directory: Path, posture: PostureSpec) -> Knowledge:
    """What is known now: shipped, synced into `directory`, and in the feed directory that the fleet file names.

    A feed directory that cannot be read is among what could not be read: it must not look like one that says nothing.

    Raises:
        PilothouseError: state_unreadable.
    """
    store = AdvisoryStore(directory)
    snapshots = [shipped_snapshot(), store.synced()]
    if posture.feed_directory is not None:
        snapshots.append(_read(FeedDirectory(Path(posture.feed_directory), package_names())))
    return _knowledge(snapshots, posture, store.waivers())


class Gatherer:
    """Gathers again and again. What cannot be read is named, and counts as it was when it last could be."""

    def __init__(self, directory: Path) -> None:
        self._store = AdvisoryStore(directory)
        self._feed: FeedDirectory | None = None
        self._synced: Snapshot | None = None
        self._given: tuple[GivenWaiver, ...] = ()

    def gather(self, posture: PostureSpec) -> Knowledge:
        """What is known now; see `gather`."""
        unread: list[str] = []
        try:
            self._synced = self._store.synced()
        except PilothouseError as error:
            unread.append(error.message)
        try:
            self._given = self._store.waivers()
        except PilothouseError as error:
            unread.append(error.message)
        snapshots = [shipped_snapshot(), self._synced]
        if posture.feed_directory is not None:
            directory = Path(posture.feed_directory)
            if self._feed is None or self._feed.directory != directory:
                self._feed = FeedDirectory(directory, package_names())
            snapshots.append(_read(self._feed))
        return _knowledge(snapshots, posture, self._given, tuple(unread))


def _read(feed: FeedDirectory) -> Snapshot:
    try:
        return feed.read()
    except PilothouseError as error:
        last = feed.last()
        return msgspec.structs.replace(last, unread=(*last.unread, error.message))


def _knowledge(
    snapshots: Iterable[Snapshot | None],
    posture: PostureSpec,
    given: Iterable[GivenWaiver],
    unread: tuple[str, ...] = (),
) -> Knowledge:
    there = [each for each in snapshots if each is not None]
    records = [record for each in there for record in each.records]
    # A date in words ("never") comes before all.
    date = max((each.date for each in there), key=lambda each: each if each[:1].isdecimal() else "")
    return Knowledge(
        AdvisoryIndex(unite(records, shipped_overlay()), package_names()),
        FeedState(date=date, unread=(*unread, *(line for each in there for line in each.unread))),
        policy_of(posture),
        (*posture.waivers, *(each.waiver for each in given)),
    )


def policy_of(posture: PostureSpec) -> PosturePolicy:
    """The policy that comes with the package, with a fleet's own rules before it and its requirements over it."""
    ours = shipped_policy()
    replaced = {each.name for each in posture.requirements}
    kept = tuple(each for each in ours.requirements if each.name not in replaced)
    longest = posture.max_feed_age_days
    return PosturePolicy(
        rules=(*posture.rules, *ours.rules),
        requirements=(*posture.requirements, *kept),
        max_feed_age_days=ours.max_feed_age_days if longest is None else longest,
    )


def fingerprint(directory: Path, posture: PostureSpec) -> Fingerprint:
    """Of every file that `gather` reads. What cannot be looked at is left out."""
    found = AdvisoryStore(directory).changes()
    if posture.feed_directory is not None:
        found += changes_of(Path(posture.feed_directory))
    return tuple(found)
