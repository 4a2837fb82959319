"""What the controller and the workers say to each other over the fleet's Unix socket.

Framed by `wire/control_channel.py`. The controller speaks first; a worker that hears nothing keeps its last snapshot.
"""

import msgspec

from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.ids import ReplicaId


class SnapshotPublished(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Controller to worker: the fleet as it is from now on."""

    snapshot: FleetSnapshot


class WorkerJoined(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Worker to controller, first message of a connection."""

    index: int
    pid: int


class ReplicaSuspected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Worker to controller: this replica refused or dropped a connection; look at it now.

    `silent`: it accepts requests and lets them time out, so that looking at it does not help.
    """

    replica: ReplicaId
    reason: str
    silent: bool = False


ControlMessage = SnapshotPublished | WorkerJoined | ReplicaSuspected
