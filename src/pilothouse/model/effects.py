"""What a machine wants done. Imperative; the runtime's interpreter does it and answers with an event.

The counterpart is `events.py`.
"""

import msgspec

from pilothouse.model.fleet import Endpoint, ReplicaState
from pilothouse.model.units import MonotonicNs


class Effect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all effects."""


class PlaceReplica(Effect, frozen=True, kw_only=True):
    """Fetch the weights, check them, set aside a port. Answered by ReplicaPlaced or PlacementFailed."""


class LaunchProcess(Effect, frozen=True, kw_only=True):
    """Start the engine. Answered by ProcessStarted, later by ProcessExited; or by PlacementFailed."""


class Probe(Effect, frozen=True, kw_only=True):
    """Ask the engine whether it can serve. Answered by ProbeAnswered."""


class PublishState(Effect, frozen=True, kw_only=True):
    """Tell the workers and the console. Carries what they need."""

    state: ReplicaState
    endpoint: Endpoint | None
    detail: str


class AwaitDrained(Effect, frozen=True, kw_only=True):
    """Watch the in-flight counts. Answered by DrainCompleted."""


class TerminateProcess(Effect, frozen=True, kw_only=True):
    """Ask the process group to end."""


class KillProcess(Effect, frozen=True, kw_only=True):
    """End the process group now."""


class ReleasePlacement(Effect, frozen=True, kw_only=True):
    """Give back the port and remove the record: nothing of the replica is left on this host."""


class WakeAt(Effect, frozen=True, kw_only=True):
    """A timer. Answered by Woke with the same token; a machine ignores tokens it no longer waits for."""

    at: MonotonicNs
    token: int
