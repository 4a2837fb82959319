"""The workload of a request, from the request alone."""

import enum

import msgspec

LONG_CONTEXT_TOKENS = 32_768
"""Beyond this prefill is the larger part of a turn, on the silicon tables of every GPU that we have."""


class Workload(enum.StrEnum):
    """Kinds of work that engines differ in. The first that applies, in this order."""

    EMBEDDINGS = "embeddings"
    MULTIMODAL = "multimodal"
    INTERACTIVE = "interactive"
    STRUCTURED = "structured"
    REASONING = "reasoning"
    LONG_CONTEXT = "long-context"
    MOE = "moe"
    CHAT = "chat"


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a classifier may know: facts read off the request and the model's entry, never the text.

    `latency_class` is what the tenant asked for ("interactive": a first token under 50 ms). `effort` is the request's
    reasoning effort. `mixture_of_experts` is a fact of the model.
    """

    embeddings: bool = False
    multimodal: bool = False
    json_schema: bool = False
    tools: bool = False
    effort: str | None = None
    prompt_tokens: int = 0
    latency_class: str | None = None
    mixture_of_experts: bool = False


def classify(facts: RequestFacts) -> Workload:
    """The request's workload: what restricts the choice of engines most decides."""
    if facts.embeddings:
        return Workload.EMBEDDINGS
    if facts.multimodal:
        return Workload.MULTIMODAL
    if facts.latency_class == "interactive":
        return Workload.INTERACTIVE
    if facts.json_schema or facts.tools:
        return Workload.STRUCTURED
    if facts.effort in ("medium", "high", "xhigh"):
        return Workload.REASONING
    if facts.prompt_tokens > LONG_CONTEXT_TOKENS:
        return Workload.LONG_CONTEXT
    return Workload.MOE if facts.mixture_of_experts else Workload.CHAT
