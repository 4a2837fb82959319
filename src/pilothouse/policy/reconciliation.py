"""Which replicas of a deployment to start and which to drain, so that what runs becomes what the fleet file wants.

A changed deployment is replaced without losing all of its capacity: with two or more replicas one at a time, in the
place of the old one, so that the host never has to hold more than it was asked to; with a single replica the new one
is Ready before the old one drains, which needs room for both.
"""

from collections.abc import Sequence

import msgspec

from pilothouse.model.fleet import ReplicaState
from pilothouse.model.ids import ReplicaId


class PresentReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that there is. `current`: it runs what the fleet file pins now."""

    id: ReplicaId
    index: int
    current: bool
    state: ReplicaState


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now: indices of replicas to start, and replicas to drain. Ask again whenever a replica has changed."""

    start: tuple[int, ...] = ()
    drain: tuple[ReplicaId, ...] = ()


def choose(wanted: int, present: Sequence[PresentReplica]) -> Reconciliation:
    """The next steps for a deployment of which `wanted` replicas are wanted and `present` are there."""
    drain = _to_drain(wanted, present)
    return Reconciliation(start=_to_start(wanted, present), drain=tuple(replica.id for replica in drain))


def without_starts(step: Reconciliation, present: Sequence[PresentReplica]) -> Reconciliation:
    """The step for a deployment that may not serve: none is started, and what does not serve yet is not waited for.

    Those that are Ready stay as they are, so that they finish their turns, and serve again once they may.
    """
    kept = (ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.STOPPED)
    idle = tuple(each.id for each in present if each.state not in kept and each.id not in step.drain)
    return Reconciliation(drain=(*step.drain, *idle))


def _to_drain(wanted: int, present: Sequence[PresentReplica]) -> list[PresentReplica]:
    live = [replica for replica in present if replica.state not in (ReplicaState.DRAINING, ReplicaState.STOPPED)]
    current = [replica for replica in live if replica.current]
    stale = [replica for replica in live if not replica.current]
    # What does not serve goes first, then what came last.
    current.sort(key=lambda replica: (replica.state is not ReplicaState.READY, replica.index), reverse=True)
    surplus = current[: max(0, len(current) - wanted)]
    idle = [replica for replica in stale if replica.state is not ReplicaState.READY]
    serving = [replica for replica in stale if replica.state is ReplicaState.READY]
    ready = sum(replica.state is ReplicaState.READY for replica in current if replica not in surplus)
    # One may be missing while there are two or more, none while there is one.
    needed = wanted - 1 if wanted > 1 else wanted
    spare = max(0, len(serving) - max(0, needed - ready)) if ready < wanted else len(serving)
    return surplus + idle + serving[:spare]


def _to_start(wanted: int, present: Sequence[PresentReplica]) -> tuple[int, ...]:
    there = [replica for replica in present if replica.state is not ReplicaState.STOPPED]
    current = [replica for replica in there if replica.current and replica.state is not ReplicaState.DRAINING]
    # What still drains keeps its room, and its name, until it has stopped.
    room = max(wanted, 2 if wanted == 1 and len(current) < len(there) else 0) - len(there)
    taken = {replica.index for replica in there}
    free = (index for index in range(wanted + len(taken)) if index not in taken)
    return tuple(index for index, _ in zip(free, range(min(wanted - len(current), room)), strict=False))
