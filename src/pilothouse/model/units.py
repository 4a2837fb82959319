"""Units as types, so that a monotonic instant is never compared with a wall-clock one."""

from typing import NewType

MonotonicNs = NewType("MonotonicNs", int)
"""Nanoseconds of a clock that never goes back; comparable only within one machine boot."""
WallNs = NewType("WallNs", int)
"""Nanoseconds since the Unix epoch, in UTC."""
DurationNs = NewType("DurationNs", int)
Tokens = NewType("Tokens", int)
Ratio = NewType("Ratio", float)
"""Between 0 and 1."""

MILLISECOND = DurationNs(1_000_000)
SECOND = DurationNs(1_000_000_000)


def seconds(value: float) -> DurationNs:
    """`value` seconds as nanoseconds."""
    return DurationNs(round(value * SECOND))


def after(instant: MonotonicNs, duration: DurationNs) -> MonotonicNs:
    """The instant `duration` later."""
    return MonotonicNs(instant + duration)
