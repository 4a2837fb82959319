"""The fleet as the data plane sees it: an immutable snapshot, swapped by reference.

The controller publishes it to the workers and to a file, from which a worker starts when there is no controller.
"""

import enum

import msgspec

from pilothouse.model.filters import FilterSpec
from pilothouse.model.ids import DeploymentName, FleetName, ModelName, ReplicaId
from pilothouse.model.requests import Route
from pilothouse.model.spec import Timeouts
from pilothouse.model.tenants import Price, Tier


class ReplicaState(enum.StrEnum):
    """Where a replica is in its life; `policy/replica_lifecycle.py` has the transitions."""

    PENDING = "Pending"
    PLACING = "Placing"
    STARTING = "Starting"
    LOADING = "Loading"
    WARMING = "Warming"
    READY = "Ready"
    DRAINING = "Draining"
    STOPPED = "Stopped"
    FAILED = "Failed"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a replica listens, and what it wants to hear.

    `base_path` is put before the route's path (`""` or `/openai`, without a trailing slash). `authorization` is the
    whole value of the header sent to the engine; it is a secret.
    """

    host: str
    port: int
    tls: bool = False
    base_path: str = ""
    authorization: str | None = None

    def __repr__(self) -> str:
        """Without the secret: an endpoint may end up in a log or a traceback."""
        return f"Endpoint({self.host!r}, {self.port}, tls={self.tls}, base_path={self.base_path!r})"


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    """One running instance of a deployment. `alias` is what clients may see of it."""

    id: ReplicaId
    alias: str
    deployment: DeploymentName
    state: ReplicaState
    endpoint: Endpoint | None = None


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica, or all of a deployment, can have under way: requests, and tokens in KV caches."""

    slots: int
    tokens: int


class DeploymentView(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned tuple that can serve a model, with what its engine's driver says about requests.

    `served_model` is the name the engine wants to hear (`None`: the public name as the client sent it).
    `reserved_headers` (lower case) and `reserved_fields` (top-level body fields) are never taken from a client.
    `reports_stream_usage`: the engine honours `stream_options.include_usage`.
    `quarantined`: its posture denies it, so that it takes no new turns.
    `without`: the features whose requests it must not get.
    `progress_field`: the engine hears only by writing that a client has gone. With this body field it writes while it
    reads a prompt; and it is asked for a stream, whatever the client asked for.
    `salt_field` is the body field that partitions the engine's prefix cache; each tenant gets a salt of its own.
    `priority_field` is the one of its priority, and `priorities` what it hears for each tier.
    `capacity` is what one replica can have under way, `None` if that is not known: then nobody waits for it here.
    """

    name: DeploymentName
    engine: str
    routes: tuple[Route, ...]
    served_model: str | None = None
    reserved_headers: tuple[str, ...] = ()
    reserved_fields: tuple[str, ...] = ()
    reports_stream_usage: bool = True
    progress_field: str | None = None
    capacity: Capacity | None = None
    salt_field: str | None = None
    priority_field: str | None = None
    priorities: dict[Tier, int] = {}
    quarantined: bool = False
    without: tuple[str, ...] = ()
    replicas: tuple[ReplicaView, ...] = ()


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A public model name and the deployments that can serve it. `created` is in seconds since the epoch.

    `timeouts` are its rules by route, where there are any; what they leave open is the gateway's limits. `price` is
    what its tokens cost, `None` for nothing.
    """

    name: ModelName
    created: int
    deployments: tuple[DeploymentView, ...]
    timeouts: dict[Route, Timeouts] = {}
    price: Price | None = None


class FleetSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The models, their replicas and the filters. `version` grows with every change."""

    fleet: FleetName
    version: int
    models: tuple[ModelView, ...] = ()
    filters: tuple[FilterSpec, ...] = ()
