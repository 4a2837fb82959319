"""The deployments of a fleet as what advisories are held against."""

import ipaddress

from pilothouse.engines import registry
from pilothouse.engines.launch_features import features_of
from pilothouse.model.posture import Exposure
from pilothouse.model.spec import DeploymentSpec, FleetSpec
from pilothouse.policy.advisories.verdicts import Subject


def subjects(spec: FleetSpec) -> list[Subject]:
    """One for each deployment whose engine advisories apply to: a server that others run has no version of ours."""
    exposure = exposure_of(spec)
    return [
        found
        for model in spec.models
        for deployment in model.deployments
        if (found := subject(deployment, exposure)) is not None
    ]


def subject(deployment: DeploymentSpec, exposure: Exposure) -> Subject | None:
    """One deployment; `None` if no advisory applies to its engine."""
    driver = registry.driver(deployment.engine.name)
    if driver.advisory_package is None:
        return None
    return Subject(
        name=deployment.name,
        package=driver.advisory_package,
        version=driver.advisory_version(deployment),
        # A replica's environment is built from empty, so that nothing of the host's can turn a feature on.
        features=features_of(driver.features, deployment.engine.args, {}),
        exposure=exposure,
    )


def exposure_of(spec: FleetSpec) -> Exposure:
    """Who can send requests to a fleet: what it says, else what follows from the gateway's address."""
    if spec.posture.exposure is not None:
        return spec.posture.exposure
    host = spec.gateway.listen.host
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return Exposure.LOCAL if is_loopback else Exposure.PUBLIC
