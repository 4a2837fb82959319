"""The seam for limits and fairness: what stands between arrivals and the router."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pilothouse.simulator.turn import Turn


class Taken(NamedTuple):
    """What a gate lets through now, and what it refuses after all, each with the code of its refusal."""

    sent: Sequence[Turn]
    refused: Sequence[tuple[Turn, str]]


class Gate(Protocol):
    """Admission and order before the engines. Times are nanoseconds of virtual time."""

    def submit(self, turn: Turn, now: int) -> str | None:
        """A turn arrives. The code of its refusal, or `None`: it will come out of `take`."""
        ...

    def take(self, now: int) -> Taken:
        """Asked after every arrival and every end."""
        ...

    def ended(self, turn: Turn, now: int) -> None:
        """A turn that was let through is over."""
        ...

    def wake_ns(self) -> int | None:
        """When to ask `take` again although nothing happens, if ever."""
        ...
