"""Machines run again from a journal: the events are given as they were, the effects have to be what they were."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from pilothouse.policy.machine import Machine
from pilothouse.runtime.journal import Journal, JournalEntry

_Machine = TypeVar("_Machine", bound=Machine)


class ReplayDiverged(Exception):  # noqa: N818 - the finding of a replay, not an error of the outside world
    """A machine answered otherwise than the journal says. Shows the step, and the steps before it."""


def replay(entries: Iterable[JournalEntry], make: Callable[[str], _Machine]) -> dict[str, _Machine]:
    """Give new machines (made by id) the events of a journal that begins at their beginning. The machines, after it.

    Raises:
        ReplayDiverged: at the first step whose effects are not the recorded ones.
        InvariantViolation: a machine refuses an event that it once took.
    """
    machines: dict[str, _Machine] = {}
    replayed = Journal(capacity=64)
    for entry in entries:
        if entry.machine not in machines:
            machines[entry.machine] = make(entry.machine)
        replayed.record(entry.machine, entry.event, machines[entry.machine].handle(entry.event))
        now = replayed.entries[-1]
        if now.effects != entry.effects:
            raise ReplayDiverged(
                f"{entry.machine} answered otherwise than recorded.\n"
                f"  recorded: {entry}\n  now:      {now}\nbefore it:\n{replayed.story(entry.machine)}"
            )
    return machines
