"""What happened to a replica. Past tense; every event says when, and time enters a machine in no other way.

Events are kept in journals, so they carry no secrets: the `authorization` of an endpoint in here is always `None`, and
whoever speaks to the engine adds it. The counterpart is `effects.py`; the machine between them is
`policy/replica_lifecycle.py`.
"""

import msgspec

from pilothouse.model.fleet import Endpoint
from pilothouse.model.units import DurationNs, MonotonicNs


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all events."""

    at: MonotonicNs


class ReplicaRequested(Event, frozen=True, kw_only=True):
    """The fleet file wants this replica; for a failed one: try again now."""


class ReplicaPlaced(Event, frozen=True, kw_only=True):
    """Weights are on this host, and a port and its share of the host are set aside.

    `endpoint` is set when there is nothing to launch, because somebody else runs the engine.
    """

    endpoint: Endpoint | None = None


class PlacementFailed(Event, frozen=True, kw_only=True):
    """It cannot be placed, or not be launched. `code` is in the error table.

    `permanent` means that only a change by a person helps.
    """

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
    """The probe with this token came back. `ready`: it can serve. Not ready with `listening`: it is still loading."""

    token: int
    ready: bool
    listening: bool
    detail: str = ""


class SuspicionRaised(Event, frozen=True, kw_only=True):
    """A worker was refused or dropped by the replica: look at it now rather than at the next turn."""

    reason: str


class ReplicaHung(Event, frozen=True, kw_only=True):
    """A worker's requests to the replica time out one after the other, though it may pass its probes."""

    reason: str


class DrainRequested(Event, frozen=True, kw_only=True):
    """Take no new turns, finish the running ones within `grace`, then stop."""

    grace: DurationNs


class DrainCompleted(Event, frozen=True, kw_only=True):
    """No worker has a request in flight on it, and every worker knows that it takes no more."""


class Woke(Event, frozen=True, kw_only=True):
    """The timer that `WakeAt` with this token asked for."""

    token: int


AnyEvent = (
    ReplicaRequested
    | ReplicaPlaced
    | PlacementFailed
    | ProcessStarted
    | ReplicaAdopted
    | ProcessExited
    | ProbeAnswered
    | SuspicionRaised
    | ReplicaHung
    | DrainRequested
    | DrainCompleted
    | Woke
)
"""Every event, as the tagged union that a journal is decoded with."""
