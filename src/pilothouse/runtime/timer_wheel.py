"""Time-outs for many connections at the cost of an attribute write.

A time-out is re-armed with every read and hardly ever fires. So arming only writes the deadline; an entry sits in one
bucket, and when the bucket comes up the deadline is looked at: passed, it fires; moved on, the entry is put further
back. (A timer of the event loop per read costs about 1 us more per request.)
"""

from collections import defaultdict
from typing import Protocol

from pilothouse.model.units import MILLISECOND, DurationNs, MonotonicNs

TICK = DurationNs(250 * MILLISECOND)
"""How often the wheel turns. A time-out fires up to three ticks late and never early."""

_LATENESS = 2 * TICK

NEVER = 0
"""The deadline of what is not armed."""

UNPLACED = 1 << 63
"""`visited_at` of an entry in no bucket: later than any deadline."""


class Timed(Protocol):
    """What can be put on the wheel, which alone writes these two, in nanoseconds (begin with NEVER and UNPLACED).

    `deadline` is when to fire; `visited_at` is when the bucket that the entry sits in comes up.
    """

    deadline: int
    visited_at: int

    def on_deadline(self) -> None:
        """The deadline has passed. It is not armed any more."""


class TimerWheel:
    """All time-outs of one worker. `now` is the time of the last turn, good enough to arm by."""

    def __init__(self, now: MonotonicNs) -> None:
        self.now = now
        self._last = now // TICK
        self._buckets: defaultdict[int, list[Timed]] = defaultdict(list)

    def arm(self, entry: Timed, delay: DurationNs) -> None:
        """Let `entry` fire after `delay`, instead of at whatever deadline it had."""
        deadline = entry.deadline = self.now + delay
        if deadline < entry.visited_at - _LATENESS:
            # `now` lags by up to one tick, hence the extra one: late is harmless, early is not.
            bucket = deadline // TICK + 2
            entry.visited_at = bucket * TICK
            self._buckets[bucket].append(entry)

    def disarm(self, entry: Timed) -> None:
        """`entry` fires no more. It leaves the wheel when its bucket comes up."""
        entry.deadline = NEVER

    def turn(self, now: MonotonicNs) -> None:
        """Fire what is due at `now`."""
        self.now = now
        current = now // TICK
        for bucket in range(self._last + 1, current + 1):
            for entry in self._buckets.pop(bucket, ()):
                if entry.visited_at == bucket * TICK:
                    entry.visited_at = UNPLACED
                    self._visit(entry)
        self._last = max(self._last, current)

    def _visit(self, entry: Timed) -> None:
        deadline = entry.deadline
        if deadline == NEVER:
            return
        if deadline <= self.now:
            entry.deadline = NEVER
            entry.on_deadline()
        else:
            self.arm(entry, DurationNs(deadline - self.now))
