"""The shape of a machine: `handle(event) -> effects`, a table of transitions, and invariants that can be checked.

Time enters a machine only with events, and a timer is an effect (`WakeAt`) answered by an event (`Woke`). `runtime/`
runs machines: live, in virtual time, or from a journal.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from pilothouse.model.effects import Effect
from pilothouse.model.events import Event


class Machine(Protocol):
    """A lifecycle as a pure object."""

    def handle(self, event: Event) -> tuple[Effect, ...]:
        """What to do now that this has happened, in this order. Raises InvariantViolation for what cannot happen."""
        ...

    def invariants(self) -> None:
        """Raise InvariantViolation unless everything that must hold does."""
        ...


class InvariantViolation(Exception):  # noqa: N818 - a defect of ours, not an error of the outside world
    """A machine got an event that cannot happen, or is in a state that cannot be. Carries the machine's story."""

    def __init__(self, subject: str, problem: str, story: tuple[str, ...]) -> None:
        super().__init__("\n  ".join((f"{subject}: {problem}. What happened:", *story)))
        self.story = story


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """What an event does in a state: a method of the machine, and every state it may lead to."""

    handler: Callable[[Any, Any], None]
    to: tuple[str, ...]


Transitions = Mapping[tuple[str, type[Event]], Transition]
"""Every step a machine can make, by state and kind of event."""
