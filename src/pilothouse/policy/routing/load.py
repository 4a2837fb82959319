"""How loaded each replica is: what this worker sent and has not seen end, with what others report, new or old."""

import math
from collections.abc import Sequence

from pilothouse.model.units import SECOND, DurationNs, MonotonicNs

STALE = DurationNs(10 * SECOND)
"""Two missed scrapes of the usual 5 s: a report older than this is no longer believed."""

RECENT = DurationNs(120 * SECOND)
"""Time constant of the decayed work. On the public conversation trace 30 s, 120 s and 300 s hit 95.1, 95.6 and 95.7 %
of what an infinite cache would on 8 replicas, and 97.1, 98.4 and 98.6 % on 16; the longest spreads best and forgets
slowest."""


class LoadBook:
    """Tokens in flight on each replica, by index.

    A report says what the replica had in flight at some moment, from all gateways. Until the next, what this worker
    started since is added, so that a burst between two polls does not all go to whoever was idle at the first. A report
    that is too old neither stops traffic nor makes its replica look idle: it then counts for the mean of the others,
    or for what this worker has there, whichever is more.
    """

    __slots__ = ("_own", "_reported", "_reported_at", "_since")

    def __init__(self, replicas: int) -> None:
        self._own = [0] * replicas
        self._since = [0] * replicas
        self._reported = [0] * replicas
        self._reported_at: list[MonotonicNs | None] = [None] * replicas

    def started(self, index: int, tokens: int) -> None:
        """A turn of `tokens` tokens was sent."""
        self._own[index] += tokens
        self._since[index] += tokens

    def ended(self, index: int, tokens: int) -> None:
        """A turn reached its end, whichever way; told once for each that started, with the same tokens."""
        if tokens > self._own[index]:
            raise ValueError(f"more ended than started on {index}: {tokens} of {self._own[index]}")
        self._own[index] -= tokens
        self._since[index] = max(0, self._since[index] - tokens)

    def reported(self, index: int, tokens: int, at: MonotonicNs) -> None:
        """The replica had `tokens` in flight at `at`."""
        self._reported[index] = tokens
        self._reported_at[index] = at
        self._since[index] = 0

    def loads(self, now: MonotonicNs) -> list[int]:
        """The load of every replica, in tokens."""
        fresh: list[int] = []
        stale: list[int] = []
        loads = self._own.copy()
        for index, at in enumerate(self._reported_at):
            if at is None:
                continue
            if now - at > STALE:
                stale.append(index)
            else:
                loads[index] = max(loads[index], self._reported[index] + self._since[index])
                fresh.append(loads[index])
        if fresh:
            mean = sum(fresh) // len(fresh)
            for index in stale:
                loads[index] = max(loads[index], mean)
        return loads


class RecentWork:
    """Prefill work given to each replica, in tokens, fading with a time constant.

    It stands for load where ends are not heard, and spreads new prefixes over caches while nobody is busy.
    """

    __slots__ = ("_at", "_constant", "_work")

    def __init__(self, replicas: int, constant: DurationNs = RECENT) -> None:
        self._constant = constant
        self._at = MonotonicNs(0)
        self._work = [0.0] * replicas

    def given(self, index: int, tokens: int) -> None:
        """The replica was given this much to prefill just now; call `loads` first."""
        self._work[index] += tokens

    def loads(self, now: MonotonicNs) -> Sequence[int]:
        """What is left of it at `now`."""
        if now > self._at:
            kept = math.exp((self._at - now) / self._constant)
            self._work = [work * kept for work in self._work]
            self._at = now
        return [int(work) for work in self._work]
