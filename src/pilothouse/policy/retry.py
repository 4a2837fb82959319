"""When a request may be tried on another replica: never after an answer has begun, and never without bound."""

import enum

from pilothouse.model.units import MILLISECOND, DurationNs

MAX_ATTEMPTS = 3
"""Replicas tried before the client hears of it: one more than Envoy's default of a first try and one retry."""

STALE_WINDOW = DurationNs(250 * MILLISECOND)
"""An engine that closes a kept-alive connection just as we write to it is heard within one round trip. A loss later
than this is an engine that died working on the request, which may be the reason it died: not tried again."""

BUDGET_RATIO = 0.2
"""Retries per request in the long run: 20 %, as Finagle's retry budget."""

BUDGET_RESERVE = 10.0
"""Retries that are always there for a gateway with little traffic, as Finagle's minimum of 10."""

BUDGET_CAP = 100.0
"""What quiet hours can save up: about what one replica has in flight when it is lost."""


class Failure(enum.StrEnum):
    """How an attempt failed before the first byte of an answer."""

    CONNECT_FAILED = "connect_failed"
    STALE_CONNECTION = "stale_connection"
    LOST = "lost"


def classify_loss(*, reused: bool, since_sent: DurationNs) -> Failure:
    """What the loss of a connection before the first byte of the answer was.

    `reused`: the connection had served before; `since_sent`: time from the write of the request to the loss.
    """
    return Failure.STALE_CONNECTION if reused and since_sent <= STALE_WINDOW else Failure.LOST


class RetryBudget:
    """Bounds retries to a share of the requests, so that a sick fleet is not also flooded."""

    __slots__ = ("_seen", "_tokens", "requests")

    def __init__(self) -> None:
        self.requests = 0
        """Requests that began; the gateway counts them here, and the budget follows when it is asked."""
        self._seen = 0
        self._tokens = BUDGET_RESERVE

    def may_retry(self, failure: Failure, attempts: int) -> bool:
        """Whether to try again after `attempts` attempts, the last of which ended in `failure`.

        Takes one retry from the budget when the answer is yes.
        """
        self._tokens = min(BUDGET_CAP, self._tokens + BUDGET_RATIO * (self.requests - self._seen))
        self._seen = self.requests
        if failure is Failure.LOST or attempts >= MAX_ATTEMPTS or self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
