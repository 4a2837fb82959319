"""What production recorded, given to the policies of this version: where would they decide otherwise?"""

import msgspec

from pilothouse.model.effects import AnyEffect
from pilothouse.model.ids import ReplicaId
from pilothouse.policy.machine import InvariantViolation
from pilothouse.policy.replica_lifecycle import LifecycleSettings, ReplicaLifecycle
from pilothouse.runtime.journal import JournalEntry, decode


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One step that is decided otherwise now; in words, as in `pilothouse logs`."""

    step: int
    machine: str
    event: str
    recorded: str
    now: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A whole journal."""

    steps: int
    machines: int
    differences: tuple[Difference, ...]


def compare(journal: bytes, settings: LifecycleSettings | None = None) -> Comparison:
    """Give the events of a journal (JSON lines, from its beginning) to new machines, and compare what they answer.

    A machine that refuses an event is shown once, and takes no more events: what would follow is not known.

    Raises:
        msgspec.MsgspecError: it is no journal.
    """
    machines: dict[str, ReplicaLifecycle] = {}
    lost: set[str] = set()
    found: list[Difference] = []
    entries = decode(journal)
    for step, entry in enumerate(entries, start=1):
        if entry.machine in lost:
            continue
        if entry.machine not in machines:
            machines[entry.machine] = ReplicaLifecycle(ReplicaId(entry.machine), settings or LifecycleSettings())
        try:
            effects = machines[entry.machine].handle(entry.event)
        except InvariantViolation as violation:
            lost.add(entry.machine)
            found.append(_difference(step, entry, f"refused: {violation}"))
            continue
        if tuple(effects) != entry.effects:
            now = msgspec.structs.replace(entry, effects=_known(effects))
            found.append(_difference(step, entry, str(now).partition(" -> ")[2]))
    return Comparison(steps=len(entries), machines=len(machines), differences=tuple(found))


def _known(effects: object) -> tuple[AnyEffect, ...]:
    """Effects of the machine as the union that a journal is made of."""
    return effects  # type: ignore[return-value]


def _difference(step: int, entry: JournalEntry, now: str) -> Difference:
    event, _, recorded = str(entry).partition(" -> ")
    return Difference(step=step, machine=entry.machine, event=event, recorded=recorded, now=now)
