"""What a request has taken from its limits, from admission to its one end.

    Reserved > Settled      the engine's numbers replace the estimate
             > Released     the request did nothing (refused later, or failed): everything is given back
             > Abandoned    nobody knows what it used: the estimate stands

Whichever comes first wins; what comes later does nothing.
"""

import enum
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from pilothouse.policy.limits.decision import BudgetAlarm


class ReservationState(enum.Enum):
    """Where a reservation is."""

    RESERVED = "Reserved"
    SETTLED = "Settled"
    RELEASED = "Released"
    ABANDONED = "Abandoned"


TRANSITIONS: dict[ReservationState, tuple[ReservationState, ...]] = {
    ReservationState.RESERVED: (
        ReservationState.SETTLED,
        ReservationState.RELEASED,
        ReservationState.ABANDONED,
    ),
    ReservationState.SETTLED: (),
    ReservationState.RELEASED: (),
    ReservationState.ABANDONED: (),
}
"""Every step there is."""

_RESERVED = ReservationState.RESERVED


class Demand(msgspec.Struct, gc=False):
    """What a request asks of its limits: estimated input, expected output, and their cost.

    `nano_cost` is in billionths of the price list's currency. `idle`: the deployment has room and nobody waits for it,
    so that limits that allow it may be passed (`LimitPlan` does so; leases do not yet).
    """

    input_tokens: int
    output_tokens: int
    nano_cost: int = 0
    idle: bool = False


class Holder(Protocol):
    """Who a reservation was made with."""

    def settle(
        self, reservation: "Reservation", now: int, input_tokens: int, output_tokens: int, nano_cost: int, requests: int
    ) -> tuple[BudgetAlarm, ...]:
        """Replace what was reserved by what was used."""

    def leave(self, reservation: "Reservation") -> None:
        """Let what was reserved stand; the request is no longer under way."""


class Reservation:
    """Ends once, by one of `settle`, `release` and `abandon`.

    `input_tokens`, `output_tokens` and `nano_cost` are what was reserved; `wall` when. `marks` is the holder's: what it
    has to know about each limit to give back what was not used. `borrowed`: a limit was passed that allows it.
    """

    __slots__ = ("_holder", "borrowed", "input_tokens", "marks", "nano_cost", "output_tokens", "state", "wall")

    def __init__(
        self,
        holder: Holder,
        wall: int,
        marks: Sequence[Any],
        input_tokens: int,
        output_tokens: int,
        nano_cost: int,
        borrowed: bool = False,
    ) -> None:
        self._holder = holder
        self.wall = wall
        self.marks = marks
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.nano_cost = nano_cost
        self.borrowed = borrowed
        self.state = _RESERVED

    def settle(
        self, now: int, input_tokens: int, output_tokens: int, nano_cost: int = 0
    ) -> tuple[BudgetAlarm, ...] | None:
        """The request has used this. The alarms that it sets off; `None` if the reservation had ended before."""
        if self.state is not _RESERVED:
            return None
        self.state = ReservationState.SETTLED
        return self._holder.settle(self, now, input_tokens, output_tokens, nano_cost, 1)

    def release(self, now: int) -> bool:
        """The request has used nothing: it was refused after all, or failed. False if the reservation had ended."""
        if self.state is not _RESERVED:
            return False
        self.state = ReservationState.RELEASED
        self._holder.settle(self, now, 0, 0, 0, 0)
        return True

    def abandon(self) -> bool:
        """Nobody knows what the request used: what was reserved is used. False if the reservation had ended."""
        if self.state is not _RESERVED:
            return False
        self.state = ReservationState.ABANDONED
        self._holder.leave(self)
        return True
