"""What the house needs to know of an engine: how to start it, ask it, read it, and what clients must not tell it.

A driver is data first: class attributes for what is the same for every deployment, and small methods for what follows
from a deployment's own arguments. It does no input or output but to read the local Python environment and the weights.
"""

import abc
import enum
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import msgspec

from pilothouse.config.problems import Problem
from pilothouse.engines.launch_features import FeatureRule
from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import Capacity, Endpoint
from pilothouse.model.requests import Route
from pilothouse.model.spec import DeploymentSpec
from pilothouse.model.tenants import Tier

REPLICA_KEY_VARIABLE = "PILOTHOUSE_REPLICA_KEY"
"""The environment variable that carries a replica's key: unlike its arguments, others on the host cannot read it."""


class LaunchLine(msgspec.Struct, frozen=True, kw_only=True):
    """How to start a replica. `argv` is readable by everybody on the host; secrets go into `env`."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}


class ProbeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A GET that tells whether a replica can serve, under the endpoint's base path.

    A status in `ready`: it can. One in `loading`: it listens but cannot yet. Any other: something is wrong with it.
    """

    path: str
    ready: frozenset[int]
    loading: frozenset[int] = frozenset()


class EngineGauge(enum.StrEnum):
    """What is read from an engine, whatever it calls it; the value is the name in our own metrics."""

    REQUESTS_RUNNING = "requests_running"
    REQUESTS_WAITING = "requests_waiting"
    KV_USAGE_RATIO = "kv_usage_ratio"


class Driver(abc.ABC):
    """One engine.

    Attributes:
        name: What the fleet file calls it.
        launches_process: Whether a replica is a process of ours; if not, it is a server that somebody else runs, with
            neither weights nor placement, reached at `endpoint()`.
        reserved_headers: Lower-case request headers that are never taken from a client.
        reserved_fields: Top-level body fields that are never taken from a client.
        reports_stream_usage: Whether it honours `stream_options.include_usage`.
        progress_field: The body field that makes it write while it reads a prompt, for an engine that hears only by
            writing that its client has gone; it is then asked for a stream whatever the client asked for. `None` for an
            engine that watches its connections.
        salt_field: The body field that partitions its prefix cache, so that tenants cannot read each other's.
        priority_field: The body field of a request's priority. Sent where `priorities()` has any.
        readiness: The probe that says whether it can serve.
        metrics_path: Where it shows Prometheus text; `None` if it does not.
        gauges: The engine's metric names, and what each one means here.
        state_path: A JSON page for what the metrics leave out, read by `read_state`; `None` if there is none.
        install_hint: What to do when it is not installed; `None` for the error table's own words.
        advisory_package: The package by whose name advisories know it; `None` where none apply to it.
        features: How its arguments and environment show which features are on that advisories speak of.
    """

    name: ClassVar[str]
    launches_process: ClassVar[bool] = True
    reserved_headers: ClassVar[tuple[str, ...]] = ()
    reserved_fields: ClassVar[tuple[str, ...]] = ()
    reports_stream_usage: ClassVar[bool] = True
    progress_field: ClassVar[str | None] = None
    salt_field: ClassVar[str | None] = None
    priority_field: ClassVar[str | None] = None
    readiness: ClassVar[ProbeSpec]
    metrics_path: ClassVar[str | None] = None
    gauges: ClassVar[Mapping[str, EngineGauge]] = MappingProxyType({})
    state_path: ClassVar[str | None] = None
    install_hint: ClassVar[str | None] = None
    advisory_package: ClassVar[str | None] = None
    features: ClassVar[tuple[FeatureRule, ...]] = ()

    @abc.abstractmethod
    def routes(self, deployment: DeploymentSpec) -> tuple[Route, ...]:
        """The routes that the engine serves under this deployment's arguments."""

    @abc.abstractmethod
    def check(self, deployment: DeploymentSpec) -> list[Problem]:
        """Everything in the deployment that the engine would not take, by paths inside it; empty when it is fine."""

    @abc.abstractmethod
    def installed_version(self) -> str | None:
        """The version in this Python environment, `None` if it is not installed (or runs elsewhere)."""

    @abc.abstractmethod
    def endpoint(self, deployment: DeploymentSpec, *, host: str, port: int, api_key: str) -> Endpoint:
        """Where a replica is reached. A driver that launches no process takes it from the deployment alone."""

    def launch(
        self, deployment: DeploymentSpec, *, host: str, port: int, api_key: str, weights: Path | None, threads: int
    ) -> LaunchLine:
        """The line that starts a replica, listening on `host`:`port` for callers with `api_key`.

        `weights` is the local file or directory; `threads` is the replica's share of the host's cores, 1 at least.
        """
        raise NotImplementedError(f"{self.name} launches no process")

    def served_model(self, deployment: DeploymentSpec) -> str | None:
        """The model name the engine wants to hear; `None` for the public name."""
        return None

    def advisory_version(self, deployment: DeploymentSpec) -> str | None:
        """The version to hold advisories against, as the package writes it: the pinned one, else the installed one."""
        return deployment.engine.version or self.installed_version()

    def memory_bytes(self, deployment: DeploymentSpec, weights: Path | None) -> int | None:
        """Host memory that one replica may come to need, in bytes; `None` if that cannot be said."""
        return None

    def priorities(self, deployment: DeploymentSpec) -> Mapping[Tier, int]:
        """What the engine hears as the priority of each tier; empty where it does not schedule by it."""
        return {}

    def capacity(self, deployment: DeploymentSpec) -> Capacity | None:
        """What one replica can have under way; `None` if that cannot be said. The operator's word goes before."""
        return None

    def read_state(self, deployment: DeploymentSpec, body: bytes) -> Mapping[EngineGauge, float]:
        """The gauges on the page at `state_path`. A body of another shape than expected gives none."""
        return {}

    def read_metrics(self, samples: Iterable[tuple[str, float]]) -> dict[EngineGauge, float]:
        """The gauges among (metric name, value) samples.

        A name that occurs several times (one sample for each data-parallel rank) is summed, and a ratio averaged.
        """
        values: dict[EngineGauge, list[float]] = {}
        for name, value in samples:
            gauge = self.gauges.get(name)
            if gauge is not None:
                values.setdefault(gauge, []).append(value)
        return {
            gauge: sum(found) / len(found) if gauge is EngineGauge.KV_USAGE_RATIO else sum(found)
            for gauge, found in values.items()
        }

    def require_installed(self, deployment: DeploymentSpec) -> None:
        """Refuse to launch what is not here, or not the pinned version.

        Raises:
            PilothouseError: engine_not_installed or engine_version_mismatch.
        """
        if not self.launches_process:
            return
        installed, pinned = self.installed_version(), deployment.engine.version
        if installed is None:
            raise PilothouseError(
                "engine_not_installed",
                f"{deployment.name}: the engine {self.name} is not installed",
                hint=self.install_hint,
            )
        if pinned is not None and pinned != installed:
            raise PilothouseError(
                "engine_version_mismatch",
                f"{deployment.name} pins {self.name} {pinned}, but {installed} is installed",
            )
