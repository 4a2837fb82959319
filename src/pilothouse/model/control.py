"""What the controller and the workers say to each other over the fleet's Unix socket.

Framed by `wire/control_channel.py`. The controller speaks first; a worker that hears nothing keeps its last snapshot.
"""

import msgspec

from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.ids import ReplicaId, TenantId
from pilothouse.model.leases import LeaseAnswers, LeaseBatch
from pilothouse.model.tenants import DirectoryChange


class SnapshotPublished(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Controller to worker: the fleet as it is from now on."""

    snapshot: FleetSnapshot


class DirectoryStored(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Controller to worker: too much has changed of tenants and keys; read their file, and join again."""


class DirectoryChanged(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Controller to worker: tenants or keys have changed. Of no use to a worker that is not at the change's base."""

    change: DirectoryChange


class WorkerJoined(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Worker to controller, first message of a connection. `directory` is the version of the tenants it knows."""

    index: int
    pid: int
    directory: int = 0


class ReplicaSuspected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Worker to controller: this replica refused or dropped a connection; look at it now.

    `silent`: it accepts requests and lets them time out, so that looking at it does not help.
    """

    replica: ReplicaId
    reason: str
    silent: bool = False


class LeasesReported(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Worker to controller: what was spent of shared limits, and what is wanted. `number` is the answer's too."""

    number: int
    batches: tuple[LeaseBatch, ...]


class LeasesAnswered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Controller to worker: what it may spend."""

    number: int
    answers: tuple[LeaseAnswers, ...]


class UsageAsked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Worker to controller: a tenant asks for its own usage; `query` is the URL's, `number` is the answer's too."""

    number: int
    tenant: TenantId
    query: str


class UsageAnswered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Controller to worker: the answer's JSON body, or why there is none."""

    number: int
    body: str = ""
    refusal: Refusal | None = None


ControlMessage = (
    SnapshotPublished
    | DirectoryStored
    | DirectoryChanged
    | LeasesAnswered
    | WorkerJoined
    | ReplicaSuspected
    | LeasesReported
    | UsageAsked
    | UsageAnswered
)
