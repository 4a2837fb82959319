"""The fake engine of `pilothouse.testing`: a real process with the OpenAI API and vLLM's metric names, but no model."""

import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pilothouse
from pilothouse.config.problems import Problem
from pilothouse.engines import reserved
from pilothouse.engines.base import (
    REPLICA_KEY_VARIABLE,
    Driver,
    EngineGauge,
    LaunchLine,
    ProbeSpec,
)
from pilothouse.model.fleet import Endpoint
from pilothouse.model.requests import Route
from pilothouse.model.spec import DeploymentSpec
from pilothouse.model.tenants import Tier

_SET_BY_US = frozenset({"host", "port", "api-key", "served-model-name"})
_OPTION = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class FakeDriver(Driver):
    """`engine: fake`. Each of `engine.args` is passed on as a long option; `true` as a flag, a list as commas.

    The process gets its key in the environment, and answers readiness at /health as vLLM does.
    """

    name: ClassVar[str] = "fake"
    reserved_headers: ClassVar[tuple[str, ...]] = tuple(reserved.VLLM_HEADERS)
    reserved_fields: ClassVar[tuple[str, ...]] = tuple(reserved.VLLM_FIELDS)
    salt_field: ClassVar[str | None] = "cache_salt"
    priority_field: ClassVar[str | None] = "priority"
    readiness: ClassVar[ProbeSpec] = ProbeSpec(path="/health", ready=frozenset({200}), loading=frozenset({503}))
    metrics_path: ClassVar[str | None] = "/metrics"
    gauges: ClassVar[Mapping[str, EngineGauge]] = MappingProxyType(
        {
            "vllm:num_requests_running": EngineGauge.REQUESTS_RUNNING,
            "vllm:num_requests_waiting": EngineGauge.REQUESTS_WAITING,
            "vllm:kv_cache_usage_perc": EngineGauge.KV_USAGE_RATIO,
        }
    )

    advisory_package: ClassVar[str | None] = "pilothouse"  # it is a part of this package

    def routes(self, deployment: DeploymentSpec) -> tuple[Route, ...]:
        """All of them."""
        return tuple(Route)

    def priorities(self, deployment: DeploymentSpec) -> Mapping[Tier, int]:
        """As vLLM's: lower goes first, and only under its priority policy."""
        if deployment.engine.args.get("scheduling-policy") != "priority":
            return {}
        return {tier: order for order, tier in enumerate(Tier)}

    def check(self, deployment: DeploymentSpec) -> list[Problem]:
        """The form of names and values; whether an option exists, the process itself says when it starts."""
        problems = []
        if deployment.upstream is not None:
            problems.append(Problem(path=("upstream",), message="the fake engine is a process of this fleet"))
        for name, value in deployment.engine.args.items():
            path = ("engine", "args", name)
            if name in _SET_BY_US:
                problems.append(Problem(path=path, message="is set by Pilothouse for every replica"))
            elif not _OPTION.fullmatch(name):
                problems.append(Problem(path=path, message="not a long option: lower case, with dashes, as max-tokens"))
            elif not _is_option_value(value):
                problems.append(
                    Problem(path=path, message="must be a text, a number, true or false, or a list of these")
                )
        return problems

    def installed_version(self) -> str | None:
        """Pilothouse's own."""
        return pilothouse.__version__

    def endpoint(self, deployment: DeploymentSpec, *, host: str, port: int, api_key: str) -> Endpoint:
        """Where the process listens, with the key it was given."""
        return Endpoint(host=host, port=port, authorization=f"Bearer {api_key}")

    def launch(
        self, deployment: DeploymentSpec, *, host: str, port: int, api_key: str, weights: Path | None, threads: int
    ) -> LaunchLine:
        """The module's command line; weights and threads are of no use to it."""
        options = [f"--host={host}", f"--port={port}", f"--served-model-name={deployment.model}"]
        for name, value in deployment.engine.args.items():
            if value is True:
                options.append(f"--{name}")
            elif value is not False:
                options.append(f"--{name}={_option_text(value)}")
        return LaunchLine(
            argv=(sys.executable, "-P", "-m", "pilothouse.testing.fake_engine", *options),
            env={REPLICA_KEY_VARIABLE: api_key, "PYTHONUNBUFFERED": "1"},
        )


def _is_option_value(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_option_value(each) and not isinstance(each, list | tuple | bool) for each in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int)


def _option_text(value: Any) -> str:
    return ",".join(str(each) for each in value) if isinstance(value, list | tuple) else str(value)
