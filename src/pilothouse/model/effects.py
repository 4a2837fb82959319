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
    """Ask the engine whether it can serve, without running the model. Answered by ProbeAnswered with the same token."""

    token: int


class PublishState(Effect, frozen=True, kw_only=True):
    """Tell the workers and the console. `detail` says why; `log_tail` is what a process said last, oldest first."""

    state: ReplicaState
    endpoint: Endpoint | None = None
    detail: str = ""
    log_tail: tuple[str, ...] = ()


class AwaitDrained(Effect, frozen=True, kw_only=True):
    """Watch the in-flight counts. Answered by DrainCompleted, unless the process is told to end before."""


class TerminateProcess(Effect, frozen=True, kw_only=True):
    """Ask the process group to end. Its end is told by ProcessExited."""


class KillProcess(Effect, frozen=True, kw_only=True):
    """End the process group now. Its end is told by ProcessExited."""


class ReleasePlacement(Effect, frozen=True, kw_only=True):
    """Give back the port and remove the record: nothing of the replica is left on this host.

    Ends a placement that is still under way, which then is not answered.
    """


class WakeAt(Effect, frozen=True, kw_only=True):
    """A timer. Answered by Woke with the same token; a machine ignores tokens it no longer waits for."""

    at: MonotonicNs
    token: int


AnyEffect = (
    PlaceReplica
    | LaunchProcess
    | Probe
    | PublishState
    | AwaitDrained
    | TerminateProcess
    | KillProcess
    | ReleasePlacement
    | WakeAt
)
"""Every effect, as the tagged union that a journal is decoded with."""
