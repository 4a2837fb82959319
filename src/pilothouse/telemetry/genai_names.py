"""OpenTelemetry's names for generative AI, pinned: they are in development, and change from release to release.

Source: open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-spans.md, and the stable HTTP conventions.
"""

from collections.abc import Mapping
from types import MappingProxyType

from pilothouse.model.requests import Route

OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
USAGE_CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"

HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS_CODE = "http.response.status_code"
ERROR_TYPE = "error.type"

# Ours: what the conventions have no name for.
REQUEST_ID = "pilothouse.request.id"
TENANT = "pilothouse.tenant"
DEPLOYMENT = "pilothouse.deployment"
REPLICA = "pilothouse.replica"
ATTEMPTS = "pilothouse.attempts"
OVERHEAD = "pilothouse.overhead_seconds"
FIRST_TOKEN_EVENT = "pilothouse.first_token"

OPERATIONS: Mapping[Route, str] = MappingProxyType(
    {
        Route.CHAT_COMPLETIONS: "chat",
        Route.COMPLETIONS: "text_completion",
        Route.EMBEDDINGS: "embeddings",
        Route.RESPONSES: "chat",
        Route.MESSAGES: "chat",
    }
)
