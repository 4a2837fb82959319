"""Which replicas may get new turns: circuit breakers, outliers among peers, slow start, and what is left of them."""

import enum
from collections.abc import Sequence

from pilothouse.model.fleet import ReplicaState
from pilothouse.model.units import SECOND, DurationNs, MonotonicNs, after

FAILURES_TO_OPEN = 5
"""In a row: 5, as Envoy's consecutive_5xx."""

BASE_EJECTION = DurationNs(30 * SECOND)
"""Times the number of ejections: 30 s, as Envoy's base_ejection_time."""

LONGEST_EJECTION = DurationNs(300 * SECOND)
"""300 s, as Envoy's max_ejection_time."""

MOST_EJECTED = 0.5
"""Share of the replicas that may be out at once. Beyond it failures are everybody's, and taking more out overloads the
rest; 0.5, as Envoy's panic threshold."""

SLOW_START = DurationNs(30 * SECOND)
"""A cold replica compiles and fills its caches on the first requests."""

SLOW_START_FLOOR = 0.1
"""Share of its capacity that a replica is taken to have at first: 0.1, as Envoy's min_weight_percent."""

OUTLIER_DEVIATIONS = 1.9
"""Standard deviations below the mean success rate: 1.9, as Envoy's success_rate_stdev_factor."""

OUTLIER_LEAST_REPLICAS = 5
OUTLIER_LEAST_REQUESTS = 100
"""Below these a success rate says nothing; both as Envoy."""


class Circuit(enum.StrEnum):
    """The state of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Takes a replica out after failures in a row, and lets one request try it again after a while."""

    __slots__ = ("_ejections", "_failures", "_probing", "_until")

    def __init__(self) -> None:
        self._failures = 0
        self._ejections = 0
        self._until: MonotonicNs | None = None
        self._probing = False

    def state(self, now: MonotonicNs) -> Circuit:
        """Where it stands."""
        if self._until is None:
            return Circuit.CLOSED
        return Circuit.OPEN if now < self._until else Circuit.HALF_OPEN

    def allows(self, now: MonotonicNs) -> bool:
        """Whether a turn may go there: any while closed, one at a time while half open."""
        state = self.state(now)
        return state is Circuit.CLOSED or (state is Circuit.HALF_OPEN and not self._probing)

    def sent(self, now: MonotonicNs) -> None:
        """A turn was sent there; while half open it is the one that tries."""
        self._probing = self.state(now) is Circuit.HALF_OPEN

    def succeeded(self) -> None:
        """A turn began to be answered. An ejection is forgotten with each success, as fast as they came."""
        self._failures = 0
        if self._probing or self._until is None:
            self._until = None
            self._probing = False
            self._ejections = max(0, self._ejections - 1)

    def abandoned(self) -> None:
        """A turn ended without saying anything of the replica, as when a client left before the answer."""
        self._probing = False

    def failed(self, now: MonotonicNs) -> None:
        """A turn failed before its first content, for a reason that is the replica's."""
        self._failures += 1
        if self._probing or self._failures >= FAILURES_TO_OPEN:
            self.eject(now)

    def eject(self, now: MonotonicNs) -> None:
        """Take it out, the longer the oftener."""
        self._ejections += 1
        self._until = after(now, DurationNs(min(BASE_EJECTION * self._ejections, LONGEST_EJECTION)))
        self._failures = 0
        self._probing = False


def outliers(successes: Sequence[int], requests: Sequence[int]) -> list[int]:
    """Indices of the replicas whose success rate is far below their peers', from counts of one interval.

    Envoy's rule: below mean - 1.9 standard deviations, among replicas with at least 100 requests, 5 of them at least.
    """
    rated = [index for index, count in enumerate(requests) if count >= OUTLIER_LEAST_REQUESTS]
    if len(rated) < OUTLIER_LEAST_REPLICAS:
        return []
    rates = {index: successes[index] / requests[index] for index in rated}
    mean = sum(rates.values()) / len(rates)
    deviation = (sum((rate - mean) ** 2 for rate in rates.values()) / len(rates)) ** 0.5
    # The smallest term keeps rounding from making an outlier among equals.
    return [index for index, rate in rates.items() if rate < mean - OUTLIER_DEVIATIONS * deviation - 1e-9]


def excluded(states: Sequence[ReplicaState], breakers: Sequence[Breaker], now: MonotonicNs) -> frozenset[int]:
    """Indices that get no new turn: those that are not ready (a draining one finishes its turns), and those ejected.

    When more than half of the ready ones are ejected, no ejection counts.
    """
    ready = [index for index, state in enumerate(states) if state is ReplicaState.READY]
    ejected = {index for index in ready if not breakers[index].allows(now)}
    if len(ejected) > MOST_EJECTED * len(ready):
        ejected = set()
    return frozenset(range(len(states))) - frozenset(ready) | ejected


def warming(loads: Sequence[int], ready_since: Sequence[MonotonicNs], now: MonotonicNs) -> list[int]:
    """Loads as they should be weighed while some replicas are new: as if a new one had a part of its capacity.

    An idle new replica is weighed as if it had the mean load divided by that part, less the mean: it is still taken
    when all others are busier than that, and all of it fades within the slow start.
    """
    weighed = list(loads)
    if not weighed:
        return weighed
    mean = sum(loads) // len(loads)
    for index, since in enumerate(ready_since):
        age = now - since
        if age < SLOW_START:
            part = max(SLOW_START_FLOOR, age / SLOW_START)
            weighed[index] = int((loads[index] + mean) / part) - mean
    return weighed
