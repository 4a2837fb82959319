"""Headers and body fields that speak to an engine's inside, and why clients may not use them.

The gateway removes them from what a client sends. Each table belongs to one family of engines; a driver takes the
families that may stand behind it. Where a line names no engine's documentation, it is from the released sources:
vLLM 0.33 (entrypoints/generate), SGLang 0.5.23 (entrypoints/request_headers.py), llama.cpp b11434 (tools/server).

What is not here passes: a field that costs or changes only the client's own request is the client's business
(llama.cpp's `cache_prompt`, `n_keep`, `n_discard`, `t_max_predict_ms`; vLLM's `return_token_ids`).
"""

from collections.abc import Mapping
from types import MappingProxyType

_QUEUE = "jumps the engine's queue before other tenants"
_RANK = "chooses the data-parallel rank, which is the router's to choose"
_SHARED_CACHE = "chooses the prefix cache's partition, which keeps tenants apart"
_TRANSFER = "makes the engine fetch or send cache blocks by addresses that the client names"
_IDENTITY = "is the name by which the engine aborts a request, so one client could end another's"
_TENANT = "carries the tenant's identity to the engine's scheduler and metrics"
_SESSION = "joins a session of the engine's, perhaps another client's"
_ENDPOINT = "overrides the choice of the replica"

VLLM_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "x-vllm-priority": _QUEUE + "; it wins over the body",
        "x-data-parallel-rank": _RANK,
        "x-session-id": _SESSION,
    }
)
VLLM_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "priority": _QUEUE,
        "cache_salt": _SHARED_CACHE,
        "vllm_xargs": _TENANT,
        "kv_transfer_params": _TRANSFER,
        "ec_transfer_params": _TRANSFER,
        "kv_hints": "moves or drops cache blocks that others use",
        "session_id": _SESSION,
        "request_id": _IDENTITY,
        "data_parallel_rank": _RANK,
    }
)

SGLANG_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "x-override-priority": _QUEUE,
        "x-override-rid": _IDENTITY,
        "x-override-routed-dp-rank": _RANK,
        "x-custom-labels": _TENANT,
        "x-smg-routing-key": _ENDPOINT,
        "x-smg-priority": _QUEUE,
    }
)
SGLANG_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "priority": _QUEUE,
        "rid": _IDENTITY,
        "extra_key": _SHARED_CACHE,
        "cache_salt": _SHARED_CACHE,
        "custom_params": _TENANT,
        "custom_labels": _TENANT,
        "custom_logit_processor": "is code that the engine runs",
        "session_params": _SESSION,
        "lora_path": "loads an adapter from a path that the client names",
        "data_parallel_rank": _RANK,
        "routed_dp_rank": _RANK,
        "bootstrap_host": _TRANSFER,
        "bootstrap_port": _TRANSFER,
        "bootstrap_room": _TRANSFER,
    }
)

LLAMACPP_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "x-conversation-id": "attaches to a resumable stream, perhaps another client's",
    }
)
LLAMACPP_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "id_slot": "claims a slot, and so evicts or reads on from another client's cache",
        "lora": "applies other adapters than the deployment pins",
    }
)

ROUTER_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "x-gateway-destination-endpoint": _ENDPOINT,
        "x-gateway-destination-endpoint-subset": _ENDPOINT,
        "x-llm-d-inference-fairness-id": _TENANT,
        "x-session-token": _SESSION,
    }
)

HOSTED_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "openai-organization": "chooses which account of the operator's pays",
        "openai-project": "chooses which account of the operator's pays",
    }
)
HOSTED_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "service_tier": "chooses the price that the operator pays",
    }
)
