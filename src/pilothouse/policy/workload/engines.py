"""Which engine for which workload, as data with the why; operators override rows, what is absent is passed over."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from pilothouse.policy.workload.classify import Workload


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Preferred engines or deployments in order. What is in `never` is not taken even if it is all there is."""

    prefer: tuple[str, ...]
    why: str
    never: tuple[str, ...] = ()


DEFAULT_TABLE: Mapping[Workload, Row] = {
    Workload.CHAT: Row(prefer=("vllm",), why="mixed public chat: the widest model support and steady batching"),
    Workload.STRUCTURED: Row(
        prefer=("sglang", "vllm"), why="grammar-constrained output and shared prefixes, text only"
    ),
    Workload.INTERACTIVE: Row(
        prefer=("cerebras", "groq", "tensorrt-llm", "vllm"), why="a first token under 50 ms, then one compiled model"
    ),
    Workload.MULTIMODAL: Row(prefer=("vllm",), why="multimodal inputs; an open advisory is a matter of posture"),
    Workload.REASONING: Row(prefer=("tensorrt-llm", "vllm"), why="long decode at low concurrency"),
    Workload.LONG_CONTEXT: Row(prefer=("vllm", "sglang"), why="chunked prefill, and prefix caches worth routing for"),
    Workload.MOE: Row(prefer=("vllm", "sglang"), why="schedulers that know experts"),
    Workload.EMBEDDINGS: Row(prefer=("vllm",), why="pooling models in the same engine"),
}
"""The map of May 2026."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """What this choice needs of a deployment. `refuses` are workloads that its posture does not allow now.

    `available`: some replica is ready and not full.
    """

    name: str
    engine: str
    available: bool = True
    refuses: frozenset[Workload] = frozenset()


class EngineChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Deployments to try, in order, with the row that ordered them and what was left out, each with its reason."""

    workload: Workload
    order: tuple[str, ...]
    why: str
    left_out: Mapping[str, str] = {}


def with_overrides(overrides: Mapping[Workload, Row]) -> dict[Workload, Row]:
    """The default table with an operator's rows."""
    return {**DEFAULT_TABLE, **overrides}


def unknown_names(rows: Mapping[Workload, Row], deployments: Collection[Deployment]) -> list[tuple[Workload, str]]:
    """Names in an operator's rows that are neither a deployment's nor the engine of one."""
    known = {one.name for one in deployments} | {one.engine for one in deployments}
    return [
        (workload, name) for workload, row in rows.items() for name in (*row.prefer, *row.never) if name not in known
    ]


def order_deployments(
    workload: Workload, deployments: Sequence[Deployment], table: Mapping[Workload, Row] = DEFAULT_TABLE
) -> EngineChoice:
    """The deployments that may serve the workload: the row's first, then the others as they stand in the fleet file."""
    row = table[workload]
    left_out: dict[str, str] = {}
    allowed: list[Deployment] = []
    for one in deployments:
        if one.name in row.never or one.engine in row.never:
            left_out[one.name] = f"never for {workload}"
        elif workload in one.refuses:
            left_out[one.name] = f"its posture does not allow {workload}"
        elif not one.available:
            left_out[one.name] = "no replica is ready, or all are full"
        else:
            allowed.append(one)

    def rank(one: Deployment) -> int:
        places = [place for place, name in enumerate(row.prefer) if name in (one.name, one.engine)]
        return places[0] if places else len(row.prefer)

    ordered = sorted(allowed, key=rank)  # stable: the file's order among equals
    return EngineChoice(workload=workload, order=tuple(one.name for one in ordered), why=row.why, left_out=left_out)
