"""What happened to a replica. Past tense; every event says when, and time enters a machine in no other way.

The counterpart is `effects.py`. The machine between them is `policy/replica_lifecycle.py`.
"""

import msgspec

from pilothouse.model.fleet import Endpoint
from pilothouse.model.units import DurationNs, MonotonicNs


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all events."""

    at: MonotonicNs


class ReplicaRequested(Event, frozen=True, kw_only=True):
    """The fleet file wants this replica (again)."""


class ReplicaPlaced(Event, frozen=True, kw_only=True):
    """Weights are on this host, and a port and its share of the host are set aside."""


class PlacementFailed(Event, frozen=True, kw_only=True):
    """It cannot be placed. `code` is in the error table; `permanent` means only a change by a person helps."""

    code: str
    message: str
    permanent: bool


class ProcessStarted(Event, frozen=True, kw_only=True):
    """The engine's process exists and will listen on `endpoint`."""

    pid: int
    endpoint: Endpoint


class ReplicaAdopted(Event, frozen=True, kw_only=True):
    """A process that an earlier controller started was found alive and matches its pin."""

    pid: int
    endpoint: Endpoint


class ProcessExited(Event, frozen=True, kw_only=True):
    """The process is gone. `status` is the exit code, negative for a signal, `None` if it was never our child."""

    status: int | None
    log_tail: tuple[str, ...]


class ProbeAnswered(Event, frozen=True, kw_only=True):
    """A probe came back. `ready`: it can serve. Not ready with `listening` means it is still loading."""

    ready: bool
    listening: bool
    detail: str


class DrainRequested(Event, frozen=True, kw_only=True):
    """Take no new turns, finish the running ones within `grace`, then stop."""

    grace: DurationNs


class DrainCompleted(Event, frozen=True, kw_only=True):
    """No worker has a request in flight on it, and every worker knows that it takes no more."""


class Woke(Event, frozen=True, kw_only=True):
    """The timer that `WakeAt` with this token asked for."""

    token: int
