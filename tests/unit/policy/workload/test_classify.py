"""The workload of a request."""

import pytest

from pilothouse.policy.workload.classify import LONG_CONTEXT_TOKENS, RequestFacts, Workload, classify


@pytest.mark.parametrize(
    ("facts", "workload"),
    [
        (RequestFacts(), Workload.CHAT),
        (RequestFacts(embeddings=True, prompt_tokens=10**6), Workload.EMBEDDINGS),
        (RequestFacts(multimodal=True, tools=True), Workload.MULTIMODAL),
        (RequestFacts(latency_class="interactive", tools=True), Workload.INTERACTIVE),
        (RequestFacts(json_schema=True, effort="high"), Workload.STRUCTURED),
        (RequestFacts(tools=True), Workload.STRUCTURED),
        (RequestFacts(effort="high", prompt_tokens=10**6), Workload.REASONING),
        (RequestFacts(effort="low"), Workload.CHAT),
        (RequestFacts(prompt_tokens=LONG_CONTEXT_TOKENS), Workload.CHAT),
        (RequestFacts(prompt_tokens=LONG_CONTEXT_TOKENS + 1, mixture_of_experts=True), Workload.LONG_CONTEXT),
        (RequestFacts(mixture_of_experts=True), Workload.MOE),
    ],
)
def test_what_restricts_engines_most_decides(facts: RequestFacts, workload: Workload) -> None:
    assert classify(facts) is workload
