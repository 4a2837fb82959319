"""The fleet as an operator sees it: what `pilothouse status` and the admin API show."""

import msgspec

from pilothouse.model.fleet import ReplicaState
from pilothouse.model.ids import DeploymentName, FleetName, ModelName, ReplicaId
from pilothouse.model.posture import Outcome


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One replica. `detail` says why it is in its state; gauges are `None` where the engine does not tell."""

    id: ReplicaId
    model: ModelName
    deployment: DeploymentName
    engine: str
    state: ReplicaState
    detail: str = ""
    address: str | None = None
    pid: int | None = None
    uptime_s: float | None = None
    restarts: int = 0
    in_flight: int = 0
    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_usage_ratio: float | None = None
    log_tail: tuple[str, ...] = ()


class PostureStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What advisories allow one deployment to do, and why.

    `without` are the features whose requests it does not get. `upgrade_to` is the lowest version that clears what acts,
    `None` if none is known. `feed_age_days` is how old the newest feed of advisories is.
    """

    deployment: DeploymentName
    outcome: Outcome
    headline: str
    without: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    upgrade_to: str | None = None
    feed_age_days: int = 0


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway worker, by the control connection it holds."""

    index: int
    pid: int
    snapshot_version: int


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole fleet. `ready`: every wanted replica is Ready, and none of them denied."""

    fleet: FleetName
    version: str
    gateway: str
    admin: str
    fleet_file: str | None
    ready: bool
    snapshot_version: int
    workers: tuple[WorkerStatus, ...]
    replicas: tuple[ReplicaStatus, ...]
    postures: tuple[PostureStatus, ...] = ()


class ReloadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload did: one line per change, empty when nothing changed."""

    changes: tuple[str, ...]
