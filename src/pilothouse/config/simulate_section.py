"""The `simulate:` section of a fleet file: what `pilothouse simulate` needs to know beside the fleet itself.

A fleet that serves ignores it, so that the file that was planned with is the file that runs.
"""

from typing import Annotated, Literal

from pydantic import Field

from pilothouse.config.section import Section

_DAY_S = 86_400.0
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

TraceFormat = Literal["mooncake", "azure", "vtc", "burstgpt", "bailian", "agentic", "engine-log", "ledger"]


class TenantSection(Section):
    """A tenant of a synthetic workload."""

    name: str = Field(description="The tenant's name.")
    share: Positive = Field(default=1.0, description="Its part of the arrivals, by weight.")


class TraceSection(Section):
    """A recorded workload."""

    format: TraceFormat = Field(description="The form of the file, by the name of the trace that is published in it.")
    path: str = Field(description="The file, relative to where the command runs; it may be gzipped.")


class WorkloadSection(Section):
    """What arrives: a trace, or what the other keys describe. Lengths are lognormal around their medians."""

    trace: TraceSection | None = Field(default=None, description="A recorded workload instead of a synthetic one.")
    copies: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1, description="Every request of a trace so many times, as that many times the users would send."
    )
    speed: float = Field(default=1.0, gt=0, le=10_000, description="By what to divide the times of a trace.")
    start_s: float = Field(default=0.0, ge=0, description="From when on a trace is taken, in its own seconds.")
    end_s: float = Field(default=0.0, ge=0, description="Until when; 0 is its end.")
    rate_per_s: float = Field(default=1.0, gt=0, le=100_000, description="Sessions that begin in a second.")
    duration_s: float = Field(default=600.0, gt=0, le=30 * _DAY_S, description="For how long sessions begin.")
    burstiness: float = Field(
        default=1.0, ge=0.1, le=100, description="Coefficient of variation of the gaps between arrivals; 1 is Poisson."
    )
    prompt_tokens: int = Field(default=512, ge=1, le=1_000_000, description="Median of what a turn adds to the prompt.")
    output_tokens: int = Field(default=128, ge=1, le=1_000_000, description="Median of the output.")
    sigma: float = Field(default=0.8, ge=0, le=4, description="Of the logarithm of both lengths.")
    turns: int = Field(default=1, ge=1, le=1_000, description="Turns of a session.")
    think_s: float = Field(default=10.0, ge=0, le=_DAY_S, description="Mean time between an answer and the next turn.")
    prefixes: int = Field(default=0, ge=0, le=1_000_000, description="Shared system prompts, Zipf distributed.")
    prefix_tokens: int = Field(default=1_024, ge=0, le=1_000_000, description="Tokens of each of them.")
    tenants: list[TenantSection] = Field(default=[], description="Whose sessions they are, by weight.")


class HostedSection(Section):
    """A provider's engine, of which only pace and limits are known."""

    ttft_s: Positive = Field(description="Time to first token, in seconds.")
    tokens_per_s: Positive = Field(description="Output tokens a second of one answer.")
    requests_per_minute: Annotated[int, Field(ge=1)] | None = Field(default=None, description="Beyond it: refused.")
    tokens_per_minute: Annotated[int, Field(ge=1)] | None = Field(default=None, description="Beyond it: refused.")


class EngineModelSection(Section):
    """How a replica is modelled."""

    profile: str = Field(
        default="llama-3.1-8b-h100", description="A profile that comes with the package, or the path of one."
    )
    tensor_parallel: int = Field(default=1, ge=1, le=64, description="GPUs that share each layer.")
    pipeline_parallel: int = Field(default=1, ge=1, le=64, description="Stages that a replica's layers are cut into.")
    links: str = Field(default="h100-vllm-graph", description="What those GPUs are connected by.")
    kv_blocks: int = Field(default=0, ge=0, description="The engine's own block count; 0 takes the profile's.")
    max_batch_tokens: int = Field(default=0, ge=0, description="Token budget of a step; 0 takes the profile's.")
    max_sequences: int = Field(default=0, ge=0, description="Sequences at once; 0 takes the profile's.")
    prefix_caching: bool = Field(default=True, description="Whether the engine keeps prefixes.")
    pool: str = Field(default="", description="The pool its GPUs are of.")
    price_per_gpu_hour: float = Field(default=0.0, ge=0, description="In the currency of the report.")
    from_s: float = Field(default=0.0, ge=0, description="When its start begins; 0 is ready from the beginning.")
    provision_s: float = Field(default=0.0, ge=0, description="Seconds until its node is there.")
    hosted: HostedSection | None = Field(default=None, description="A provider's engine instead of a profile.")


class FaultSection(Section):
    """Something that happens to one replica."""

    kind: Literal["crash", "stall", "slow"] = Field(description="What happens.")
    replica: int = Field(ge=0, description="To which: its index, in the order of the file.")
    at_s: NotNegative = Field(description="When, in seconds.")
    for_s: Positive = Field(description="For how long, in seconds.")
    factor: Positive = Field(default=1.0, description="How much longer the steps of a slow one take.")


class SloSection(Section):
    """What counts as good."""

    ttft_s: float = Field(default=2.0, gt=0, description="Seconds to the first token.")
    tpot_s: float = Field(default=0.1, gt=0, description="Mean seconds between tokens.")


class SimulateSection(Section):
    """What `pilothouse simulate` runs the fleet with. A fleet that serves ignores it."""

    model: str = Field(default="", description="Which of the file's models; the first if empty.")
    replicas: int = Field(default=0, ge=0, le=100_000, description="Of every deployment; 0 is as in the file.")
    seed: int = Field(default=0, ge=0, description="Of everything that is left to chance.")
    router: Literal["least-loaded"] = Field(default="least-loaded", description="The routing policy.")
    network_ms: float = Field(default=0.0, ge=0, le=60_000, description="From the gateway to a replica and back.")
    stale_ms: float = Field(
        default=0.0, ge=0, le=600_000, description="How old the router's view of loads may be; 0 is one gateway."
    )
    workload: WorkloadSection = Field(default=WorkloadSection(), description="What arrives.")
    engine: EngineModelSection = Field(default=EngineModelSection(), description="How replicas are modelled.")
    deployments: dict[str, EngineModelSection] = Field(
        default={}, description="Those that are modelled otherwise, by their names in the fleet."
    )
    slo: SloSection = Field(default=SloSection(), description="What counts as good.")
    faults: list[FaultSection] = Field(default=[], description="What goes wrong.")
