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
from pilothouse.store.advisories.feed_directory import FileChange, changes_of, read_listed
from pilothouse.store.advisories.local import AdvisoryStore
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
    known = store.snapshot()
    if posture.feed_directory is not None:
        known = _with_directory(known, Path(posture.feed_directory))
    return _knowledge(known, posture, tuple(each.waiver for each in store.waivers()))


def shipped_knowledge(posture: PostureSpec, *, unread: tuple[str, ...] = ()) -> Knowledge:
    """What is known without anything beside the package; `unread` says what could not be read."""
    return _knowledge(msgspec.structs.replace(shipped_snapshot(), unread=unread), posture, ())


def _knowledge(known: Snapshot, posture: PostureSpec, given: tuple[Waiver, ...]) -> Knowledge:
    return Knowledge(
        AdvisoryIndex(unite(known.records, shipped_overlay()), package_names()),
        FeedState(date=known.date, unread=known.unread),
        policy_of(posture),
        (*posture.waivers, *given),
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


def _with_directory(known: Snapshot, directory: Path) -> Snapshot:
    try:
        found = read_listed(directory, package_names())
    except PilothouseError as error:
        return msgspec.structs.replace(known, unread=(*known.unread, error.message))
    # Of dates in words ("never") the other one counts.
    return Snapshot(
        date=max(known.date, found.date, key=lambda each: each if each[:1].isdecimal() else ""),
        records=(*known.records, *found.records),
        unread=(*known.unread, *found.unread),
    )
