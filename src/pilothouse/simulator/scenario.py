"""A scenario: a fleet file with its `simulate:` section, made a fleet in virtual time and its workload."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from pilothouse.config.loaded import LoadedFleet
from pilothouse.config.simulate_section import EngineModelSection, SimulateSection, WorkloadSection
from pilothouse.model.units import MILLISECOND, SECOND
from pilothouse.policy.draw import Draws
from pilothouse.simulator.cold_start import cold_start
from pilothouse.simulator.engine import Engine
from pilothouse.simulator.fleet import AnyEngine, Fault, FaultKind, Fleet, Outcome, Replica
from pilothouse.simulator.hosted import HostedEngine, HostedSpec
from pilothouse.simulator.links import load_links
from pilothouse.simulator.pipeline import PipelineEngine
from pilothouse.simulator.profile import Profile, load
from pilothouse.simulator.routers import LeastLoaded
from pilothouse.simulator.step_times import EngineLimits
from pilothouse.simulator.turn import Turn
from pilothouse.simulator.workloads.generators import SYNTHETIC_UNIT_TOKENS, Synthetic, TenantShare, generate
from pilothouse.simulator.workloads.loaders import LOADERS
from pilothouse.simulator.workloads.shaping import between, faster, multiplied

_FAR = 1 << 62


class ScenarioInvalid(Exception):  # noqa: N818 - it says what is wrong with a file, not with the program
    """A scenario that cannot be run, in words."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What a run needs, ready to be sent to another process."""

    name: str
    deployments: tuple[tuple[str, int], ...]
    """Name and replicas of each deployment of the simulated model."""
    section: SimulateSection

    @classmethod
    def of(cls, loaded: LoadedFleet) -> "Scenario":
        """The scenario of a fleet file.

        Raises:
            ScenarioInvalid: it names a model or a deployment that the fleet does not have.
        """
        section = loaded.file.simulate
        models = {str(model.name): model for model in loaded.spec.models}
        wanted = section.model or next(iter(models))
        if wanted not in models:
            raise ScenarioInvalid(f"simulate.model: the fleet has no model {wanted}")
        found = tuple((str(each.name), each.replicas) for each in models[wanted].deployments)
        for name in section.deployments:
            if name not in dict(found):
                raise ScenarioInvalid(f"simulate.deployments: the model {wanted} has no deployment {name}")
        return cls(name=str(loaded.spec.name), deployments=found, section=section)


def run(scenario: Scenario, seed: int) -> Outcome:
    """One run.

    Raises:
        ScenarioInvalid: a profile, a trace or a length that the model cannot serve.
    """
    section = scenario.section
    unit_tokens = _unit_tokens(section.workload)
    replicas = _replicas(scenario, unit_tokens)
    if not replicas:
        raise ScenarioInvalid("there are no replicas: set simulate.replicas, or replicas of a deployment")
    for fault in section.faults:
        if fault.replica >= len(replicas):
            raise ScenarioInvalid(f"simulate.faults: there is no replica {fault.replica}, only {len(replicas)}")
    fleet = Fleet(
        replicas,
        LeastLoaded(len(replicas), Draws(seed), stale_ns=round(section.stale_ms * MILLISECOND)),
        network_ns=round(section.network_ms * MILLISECOND),
        faults=[
            Fault(kind=FaultKind(each.kind), replica=each.replica, at_s=each.at_s, for_s=each.for_s, factor=each.factor)
            for each in section.faults
        ],
    )
    try:
        return fleet.run(workload(section.workload, seed))
    except ValueError as error:
        raise ScenarioInvalid(str(error)) from error


def workload(section: WorkloadSection, seed: int) -> Iterable[Turn]:
    """The turns of a `workload:` section, in the order of arrival.

    Raises:
        OSError, TraceInvalid: the trace cannot be read.
    """
    if section.trace is None:
        return generate(
            Synthetic(
                rate_per_s=section.rate_per_s,
                duration_s=section.duration_s,
                burstiness=section.burstiness,
                prompt=section.prompt_tokens,
                prompt_sigma=section.sigma,
                output=section.output_tokens,
                output_sigma=section.sigma,
                turns=section.turns,
                think_s=section.think_s,
                prefixes=section.prefixes,
                prefix_tokens=section.prefix_tokens,
                tenants=tuple(TenantShare(name=each.name, share=each.share) for each in section.tenants),
            ),
            seed,
        )
    turns = LOADERS[section.trace.format][0](Path(section.trace.path))
    end_ns = round(section.end_s * SECOND) or _FAR
    turns = list(between(turns, round(section.start_s * SECOND), end_ns))
    arriving: Iterable[Turn] = turns
    if section.copies > 1:
        arriving = multiplied(turns, section.copies, seed=seed)
    return faster(arriving, section.speed) if section.speed != 1.0 else arriving


def profile_of(section: EngineModelSection) -> Profile:
    """The profile of one deployment, in its layout.

    Raises:
        ScenarioInvalid: there is none, or it cannot be laid out so.
    """
    try:
        profile = load(section.profile)
        if section.tensor_parallel == 1:
            return profile
        links = load_links(section.links)
        if section.tensor_parallel not in links:
            raise ScenarioInvalid(f"links {section.links} are known for {', '.join(map(str, links))} GPUs")
        return profile.sharded(section.tensor_parallel, links[section.tensor_parallel])
    except (LookupError, OSError, ValueError, msgspec.MsgspecError) as error:
        raise ScenarioInvalid(f"profile {section.profile}: {error}") from error


def _replicas(scenario: Scenario, unit_tokens: int | None) -> list[Replica]:
    section = scenario.section
    made: list[Replica] = []
    for deployment, count in scenario.deployments:
        model = section.deployments.get(deployment, section.engine)
        for index in range(section.replicas or count):
            engine, ready_s = _engine(model, unit_tokens)
            gpus = 0 if model.hosted else model.tensor_parallel * model.pipeline_parallel
            made.append(
                Replica(
                    f"{deployment}-{index}",
                    engine,
                    deployment=deployment,
                    pool=model.pool,
                    gpus=gpus,
                    price_per_hour=gpus * model.price_per_gpu_hour,
                    from_ns=round(ready_s * SECOND),
                )
            )
    return made


def _engine(section: EngineModelSection, unit_tokens: int | None) -> tuple[AnyEngine, float]:
    """An engine, and when it is ready."""
    if section.hosted is not None:
        hosted = section.hosted
        return HostedEngine(
            HostedSpec(
                ttft_s=hosted.ttft_s,
                tokens_per_s=hosted.tokens_per_s,
                requests_per_minute=hosted.requests_per_minute,
                tokens_per_minute=hosted.tokens_per_minute,
            )
        ), section.from_s
    profile = profile_of(section)
    try:
        limits = _limits(profile, section)
    except ValueError as error:
        raise ScenarioInvalid(str(error)) from error
    ready_s = section.from_s
    if section.from_s > 0 or section.provision_s > 0:
        billions = profile.parameters_billion or 0.0
        ready_s += cold_start(billions, provision_s=section.provision_s).total_s
    unit = unit_tokens if unit_tokens and unit_tokens % limits.block_tokens == 0 else None
    if section.pipeline_parallel > 1:
        return PipelineEngine(profile, limits, stages=section.pipeline_parallel, unit_tokens=unit), ready_s
    return Engine(profile.times(limits), limits, unit_tokens=unit), ready_s


def _limits(profile: Profile, section: EngineModelSection) -> EngineLimits:
    blocks = section.kv_blocks or profile.kv_blocks or profile.default_kv_blocks(section.pipeline_parallel)
    if blocks is None:
        raise ValueError(f"the weights of {profile.name} do not fit: use more GPUs, or give simulate.engine.kv_blocks")
    return EngineLimits(
        kv_blocks=blocks,
        block_tokens=profile.block_tokens,
        max_batch_tokens=section.max_batch_tokens or profile.max_batch_tokens,
        max_sequences=section.max_sequences or profile.max_sequences,
        prefix_caching=section.prefix_caching,
    )


def _unit_tokens(section: WorkloadSection) -> int | None:
    if section.trace is not None:
        return LOADERS[section.trace.format][1]
    return SYNTHETIC_UNIT_TOKENS


def estimates_in(scenario: Scenario) -> set[str]:
    """The profiles of a scenario that no measurement stands behind."""
    section = scenario.section
    models = [section.deployments.get(name, section.engine) for name, _ in scenario.deployments]
    profiles = [profile_of(each) for each in models if each.hosted is None]
    return {each.name for each in profiles if each.provenance.estimate}
