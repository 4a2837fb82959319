"""A weighted split over arms, the same on every worker and after every restart.

Each (tenant, session) has a fixed point on a line, and each arm owns slots of that line. When weights change, an arm
that shrinks gives up slots and an arm that grows takes them, so only the sessions on those slots move: half the sum of
the changes, which is the least there can be.
"""

import enum
import hashlib
from collections.abc import Mapping, Sequence

import msgspec

SLOTS = 10_000
"""Weights are kept to a hundredth of a percent."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One way to serve a model. `weight` is relative to the other arms' weights; 0 takes nobody who is not sent to it.

    A shadow arm gets a copy of `mirror` of the sessions; its answers are thrown away.
    """

    name: str
    deployments: tuple[str, ...]
    weight: int = 0
    mirror: float = 0.0


class ArmRule(enum.StrEnum):
    """What gave a session its arm."""

    HEADER = "header"
    PIN = "pin"
    DRAW = "draw"
    ONLY_ARM = "only-arm"


class ArmChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The arm that serves, by which rule, and the arms that get a copy."""

    arm: str
    rule: ArmRule
    shadows: tuple[str, ...] = ()


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A model's arms, and who owns which slot. Made by `make_split` and changed by `reweigh`."""

    salt: str
    arms: tuple[Arm, ...]
    owners: tuple[int, ...]
    """For each of the slots the index of its arm."""
    pins: Mapping[str, str] = {}
    """Arm by tenant."""

    def choose(self, tenant: str, session: str, *, asked: str | None = None, may_ask: bool = False) -> ArmChoice:
        """The arm of a session. `asked` is the arm in a tester's header, heeded only if the tenant `may_ask`.

        A name that is no arm's is not heeded either: a test that has ended must not fail its testers.
        """
        point = _point(self.salt, tenant, session)
        names = {arm.name for arm in self.arms}
        if asked is not None and may_ask and asked in names:
            arm, rule = asked, ArmRule.HEADER
        elif self.pins.get(tenant) in names:
            arm, rule = self.pins[tenant], ArmRule.PIN
        elif sum(arm.weight > 0 for arm in self.arms) == 1:
            arm, rule = next(arm.name for arm in self.arms if arm.weight > 0), ArmRule.ONLY_ARM
        else:
            arm, rule = self.arms[self.owners[point % SLOTS]].name, ArmRule.DRAW
        # Other digits of the point than those that chose the arm: each arm's sessions are mirrored alike.
        shadows = tuple(
            one.name for one in self.arms if one.name != arm and (point // SLOTS) % SLOTS < one.mirror * SLOTS
        )
        return ArmChoice(arm=arm, rule=rule, shadows=shadows)


def make_split(salt: str, arms: Sequence[Arm], pins: Mapping[str, str] | None = None) -> Split:
    """A new split. `salt` is the model's name: a session's arms of two models have nothing to do with each other.

    Raises ValueError if no arm has a weight.
    """
    owners: list[int] = []
    for index, slots in enumerate(_shares(arms)):
        owners += [index] * slots
    return Split(salt=salt, arms=tuple(arms), owners=tuple(owners), pins=dict(pins or {}))


def reweigh(split: Split, arms: Sequence[Arm], pins: Mapping[str, str] | None = None) -> Split:
    """The same split with other weights, other arms or other pins; as few sessions move as can be.

    Arms are told by name. Workers that got the same changes in the same order agree; so one publishes `owners`.
    """
    shares = _shares(arms)
    places = {arm.name: index for index, arm in enumerate(arms)}
    owners: list[int] = []
    left = list(shares)
    for owner in split.owners:
        index = places.get(split.arms[owner].name, -1)
        if index >= 0 and left[index] > 0:
            left[index] -= 1
            owners.append(index)
        else:
            owners.append(-1)
    takers = [index for index, slots in enumerate(left) for _ in range(slots)]
    taken = iter(takers)
    owners = [next(taken) if owner < 0 else owner for owner in owners]
    return Split(
        salt=split.salt, arms=tuple(arms), owners=tuple(owners), pins=dict(split.pins if pins is None else pins)
    )


def _shares(arms: Sequence[Arm]) -> list[int]:
    """Slots for each arm, by the largest remainder; an arm with any weight gets one at least."""
    total = sum(arm.weight for arm in arms)
    if total <= 0 or any(arm.weight < 0 for arm in arms):
        raise ValueError("a split needs an arm with a weight, and no weight below zero")
    shares = [max(arm.weight * SLOTS // total, 1 if arm.weight else 0) for arm in arms]
    by_remainder = sorted(range(len(arms)), key=lambda index: (-(arms[index].weight * SLOTS % total), index))
    for index in by_remainder[: max(0, SLOTS - sum(shares))]:
        shares[index] += 1
    excess = sum(shares) - SLOTS
    if excess > 0:
        shares[shares.index(max(shares))] -= excess
    return shares


def _point(salt: str, tenant: str, session: str) -> int:
    text = "\0".join((salt, tenant, session)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
