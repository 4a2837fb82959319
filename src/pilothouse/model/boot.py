"""What the supervisor hands to the processes it starts, as one JSON file each.

A worker reads this and the last snapshot; it needs neither the fleet file nor the controller to serve.
"""

import msgspec

from pilothouse.model.ids import FleetName
from pilothouse.model.spec import (
    GatewayLimits,
    ListenAddress,
    QueueSpec,
    SharedLimitsSpec,
    TlsSpec,
    TokenIssuerSpec,
    TracesSpec,
)


class WorkerBoot(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway worker. File descriptors are inherited; paths are absolute.

    `lifeline_fd` is the read end of a pipe whose write end only the supervisor holds: end of file means it is gone.
    """

    fleet: FleetName
    index: int
    listen_fds: tuple[int, ...]
    lifeline_fd: int | None
    snapshot_path: str
    control_socket: str
    board_dir: str
    pepper_path: str
    tenants_path: str
    revocations_path: str
    spool_dir: str
    limits: GatewayLimits = GatewayLimits()
    tls: TlsSpec | None = None
    cors_origins: tuple[str, ...] = ()
    access_log_path: str | None = None
    access_log_sample: float = 1.0
    traces: TracesSpec | None = None
    shared_limits: SharedLimitsSpec = SharedLimitsSpec()
    queue: QueueSpec = QueueSpec()
    workers: int = 1
    token_issuers: tuple[TokenIssuerSpec, ...] = ()


class ControllerBoot(msgspec.Struct, frozen=True, kw_only=True):
    """The controller. It reads the fleet file itself (again on reload). `gateway` is where the workers listen."""

    fleet: FleetName
    fleet_file: str | None
    overrides: dict[str, str] = {}
    gateway: ListenAddress
    admin_fd: int
    lifeline_fd: int | None
    state_dir: str
    runtime_dir: str
