"""From the checked file to the values that the rest of the house works with."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from pilothouse.config.addresses import parse_listen
from pilothouse.config.auth_section import AuthSection
from pilothouse.config.deployment_names import deployment_name
from pilothouse.config.filter_building import BuiltFilters
from pilothouse.config.posture_section import PostureSection
from pilothouse.config.problems import Problem, SpecPath
from pilothouse.config.schema import (
    DeploymentSection,
    FleetFile,
    PriceSection,
    QueueSection,
    SharedLimitsSection,
    TlsSection,
    UpstreamSection,
    WeightsSection,
)
from pilothouse.config.secret_references import SecretMissingError, resolve_secret
from pilothouse.config.sources import absolute_source
from pilothouse.model.ids import DeploymentName, FleetName, ModelName
from pilothouse.model.posture import PostureSpec
from pilothouse.model.requests import Route
from pilothouse.model.spec import (
    CapacitySpec,
    ControllerSpec,
    DeploymentSpec,
    EngineSpec,
    FleetSpec,
    GatewayLimits,
    GatewaySpec,
    ModelSpec,
    QueueSpec,
    RoutingSpec,
    SharedLimitsSpec,
    Timeouts,
    TlsSpec,
    TokenIssuerSpec,
    TracesSpec,
    UpstreamSpec,
    WeightsSpec,
)
from pilothouse.model.tenants import Price, Tier


def build_spec(
    file: FleetFile, directory: Path, env: Mapping[str, str]
) -> tuple[FleetSpec, list[Problem], list[Problem]]:
    """The fleet, the secrets that are missing, and what is wrong with files and expressions that the file names.

    `directory` is what relative paths in the file are relative to.
    """
    builder = _Builder(directory, env)
    filters = BuiltFilters(file.filters, directory, env)
    models = tuple(
        ModelSpec(
            name=ModelName(name),
            deployments=tuple(
                builder.deployment(ModelName(name), each, ("models", name, "deployments", index))
                for index, each in enumerate(section.deployments)
            ),
            timeouts=Timeouts(**section.timeouts.model_dump()),
            routing=msgspec.convert(section.routing.model_dump(mode="json"), RoutingSpec),
            price=None if section.price is None else _price(section.price),
        )
        for name, section in file.models.items()
    )
    spec = FleetSpec(
        name=FleetName(file.fleet),
        models=models,
        gateway=GatewaySpec(
            listen=parse_listen(file.gateway.listen),
            workers=file.gateway.workers,
            limits=GatewayLimits(**file.gateway.limits.model_dump()),
            tls=None if file.gateway.tls is None else builder.tls(file.gateway.tls),
            access_log_sample=None if file.gateway.access_log is None else file.gateway.access_log.sample,
            traces=None if file.gateway.traces is None else TracesSpec(**file.gateway.traces.model_dump()),
            shared_limits=builder.shared_limits(file.gateway.shared_limits),
            queue=_queue(file.gateway.queue),
            cors_origins=tuple(file.gateway.cors.origins) if file.gateway.cors is not None else (),
            timeouts={Route(path): Timeouts(**each.model_dump()) for path, each in file.gateway.timeouts.items()},
        ),
        controller=ControllerSpec(
            listen=parse_listen(file.controller.listen),
            database=builder.secret(file.controller.database, ("controller", "database")),
        ),
        token_issuers=builder.token_issuers(file.auth),
        posture=builder.posture(file.posture),
        filters=filters.specs,
    )
    return spec, [*builder.missing, *filters.missing], filters.problems


class _Builder:
    def __init__(self, directory: Path, env: Mapping[str, str]) -> None:
        self._directory = directory
        self._env = env
        self.missing: list[Problem] = []

    def deployment(self, model: ModelName, section: DeploymentSection, path: SpecPath) -> DeploymentSpec:
        engine = section.engine
        return DeploymentSpec(
            name=DeploymentName(section.name or deployment_name(model, engine.name)),
            model=model,
            engine=EngineSpec(name=engine.name, version=engine.version, args=dict(engine.args)),
            replicas=section.replicas,
            capacity=None if section.capacity is None else CapacitySpec(**section.capacity.model_dump()),
            weights=None if section.weights is None else self._weights(section.weights),
            upstream=(
                None if section.upstream is None else self._upstream(section.upstream, (*path, "upstream", "api_key"))
            ),
        )

    def tls(self, section: TlsSection) -> TlsSpec:
        """The files, by absolute paths. Whether they can be used is seen where they are: by the worker."""
        client_ca = None if section.client_ca is None else self._path(section.client_ca)
        return TlsSpec(certificate=self._path(section.certificate), key=self._path(section.key), client_ca=client_ca)

    def token_issuers(self, section: AuthSection) -> tuple[TokenIssuerSpec, ...]:
        """Whose tokens are accepted. Whether a file of keys can be used is seen by the worker."""
        issuers = () if section.jwt is None else section.jwt.issuers
        return tuple(each.spec(None if each.jwks_file is None else self._path(each.jwks_file)) for each in issuers)

    def shared_limits(self, section: SharedLimitsSection) -> SharedLimitsSpec:
        """Where limits are kept, and what is admitted without that."""
        return SharedLimitsSpec(
            redis=self.secret(section.redis, ("gateway", "shared_limits", "redis")),
            open_share=section.open_share if section.when_unavailable == "open" else 0.0,
        )

    def posture(self, section: PostureSection) -> PostureSpec:
        """The section, its directory by an absolute path."""
        feeds, hook = section.sources, section.webhook
        own = section.model_dump(mode="json", exclude={"sources", "webhook"})
        directory = None if feeds.directory is None else self._path(feeds.directory)
        return msgspec.convert(
            {
                **own,
                "osv_url": feeds.osv,
                "feed_directory": directory,
                "allow_private_feed": feeds.allow_private,
                **({} if hook is None else {"webhook": hook.url, "allow_private_webhook": hook.allow_private}),
            },
            PostureSpec,
        )

    def _path(self, text: str) -> str:
        return str(self._directory / Path(text).expanduser())

    def _weights(self, section: WeightsSection) -> WeightsSpec:
        source = absolute_source(section.source, self._directory, self._env.get("HOME"))
        return WeightsSpec(source=source, sha256=section.sha256)

    def _upstream(self, section: UpstreamSection, path: SpecPath) -> UpstreamSpec:
        return UpstreamSpec(url=section.url, model=section.model, api_key=self.secret(section.api_key, path))

    def secret(self, reference: str | None, path: SpecPath) -> str | None:
        """What a reference leads to; if it leads to nothing, that is noted."""
        if reference is None:
            return None
        try:
            return resolve_secret(reference, self._directory, self._env)
        except SecretMissingError as error:
            self.missing.append(Problem(path=path, message=str(error)))
            return None


def _queue(section: QueueSection) -> QueueSpec:
    fields = section.model_dump(exclude={"tiers"})
    tiers = {Tier(name): (each.guarantee, each.ceiling) for name, each in section.tiers.items()}
    return QueueSpec(**fields, tiers=tiers)


def _price(section: PriceSection) -> Price:
    """In billionths, for a million tokens."""
    cached = section.cached_input
    return Price(
        input=round(section.input * 1e9),
        output=round(section.output * 1e9),
        cached_input=None if cached is None else round(cached * 1e9),
    )
