from collections.abc import Callable
from typing import Any

import pytest

from pilothouse.model.ids import DeploymentName, ModelName
from pilothouse.model.spec import DeploymentSpec, EngineSpec, UpstreamSpec, WeightsSpec

MakeDeployment = Callable[..., DeploymentSpec]


@pytest.fixture
def make_deployment() -> MakeDeployment:
    """Build a deployment of one engine; args, version, weights and upstream by keyword."""

    def make(
        engine: str,
        *,
        args: dict[str, Any] | None = None,
        version: str | None = None,
        weights: str | None = None,
        url: str | None = None,
        upstream_model: str | None = None,
        api_key: str | None = None,
    ) -> DeploymentSpec:
        return DeploymentSpec(
            name=DeploymentName("smollm2-a"),
            model=ModelName("smollm2"),
            engine=EngineSpec(name=engine, version=version, args=args or {}),
            replicas=1,
            weights=WeightsSpec(source=weights) if weights else None,
            upstream=UpstreamSpec(url=url, model=upstream_model, api_key=api_key) if url else None,
        )

    return make
