"""Launch features, and predicates over them, in three values: on, off and unknown.

An advisory often bites only when a feature is on. OSV has no field for that, so an overlay of our own maps ids to
predicates. It may narrow what a feed says and never widen it, and what is unknown does not narrow.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

Features: TypeAlias = Mapping[str, bool]
"""On or off, by name. A feature that is missing is unknown."""


class Feature(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One feature.

    Attributes:
        name: Its name in predicates, rules and `--features`.
        title: What it is, for people.
        withholdable: Requests that use it are recognised by the gateway, so that they can be kept away.
        part_of: The feature that must be on for this one to be on.
    """

    name: str
    title: str
    withholdable: bool = False
    part_of: str | None = None


class Predicate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a flaw bites: exactly one of a feature, all of some predicates, or any of some."""

    feature: str | None = None
    all: tuple["Predicate", ...] = ()
    any: tuple["Predicate", ...] = ()

    def names(self) -> frozenset[str]:
        """The features that it reads."""
        own = frozenset({self.feature}) if self.feature is not None else frozenset[str]()
        return own.union(*(each.names() for each in (*self.all, *self.any)))

    def holds(self, features: Features) -> bool | None:
        """Whether it holds; `None` where that depends on something unknown."""
        if self.feature is not None:
            return features.get(self.feature)
        values = [each.holds(features) for each in self.all or self.any]
        decisive = not self.all  # `any` is decided by one that holds, `all` by one that does not
        if decisive in values:
            return decisive
        return None if None in values else not decisive

    def __str__(self) -> str:
        if self.feature is not None:
            return self.feature
        word = " and " if self.all else " or "
        return word.join(f"({each})" if each.feature is None else str(each) for each in self.all or self.any)


class OverlayEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What an advisory needs to bite, why we say so, and which flags tell."""

    ids: tuple[str, ...]
    when: Predicate
    reason: str
    reads: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.reason} (told by {', '.join(self.reads)})" if self.reads else self.reason


class FeatureTable:
    """The features there are."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self._by_name = {each.name: each for each in features}

    def __iter__(self) -> Iterator[Feature]:
        return iter(self._by_name.values())

    def withholdable(self, name: str) -> bool:
        """Whether the gateway can keep requests of this feature away."""
        found = self._by_name.get(name)
        return found is not None and found.withholdable

    def without(self, features: Features, off: str) -> dict[str, bool]:
        """The features with one of them, and its parts, turned off."""
        parts = [each.name for each in self if off in (each.name, each.part_of)]
        return {**features, **dict.fromkeys(parts, False)}

    def outermost(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names in order, without those that are parts of others among them."""
        chosen = set(names)
        parts = {each.name for each in self if each.part_of in chosen}
        return tuple(sorted(chosen - parts))

    def only(self, on: Sequence[str]) -> dict[str, bool]:
        """These on and every other off; a part of one that is on stays unknown, and what a part is of is on."""
        wholes = {self._by_name[name].part_of for name in on if name in self._by_name}
        known = set(on) | {each for each in wholes if each is not None}
        return {
            each.name: each.name in known
            for each in self
            if each.name in known or each.part_of is None or each.part_of not in known
        }

    def completed(self, features: Features) -> dict[str, bool]:
        """With the parts of what is off, which are off, and the wholes of what is on, which are on."""
        found = dict(features)
        for each in self:
            if each.part_of is None:
                continue
            if features.get(each.part_of) is False:
                found[each.name] = False
            elif features.get(each.name) is True:
                found[each.part_of] = True
        return found
