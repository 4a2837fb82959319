"""What a fake engine is told when it starts."""

import msgspec

from pilothouse.testing.fake_engine.scripts import NORMAL, Script

DEFAULT_MAX_MODEL_LEN = 131072


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A fake engine's settings; names with a counterpart in vLLM are vLLM's. Raises ValueError on bad ones.

    `max_model_len` is the longest prompt and answer in tokens; without it, what the KV cache holds, at most 131072.
    `port` 0 asks the system for a free one. `served_model_names` are all accepted; the first is reported.
    `api_key` guards the /v1 routes. `zero_latency` leaves out scheduler and KV cache. `scriptable` lets requests and
    the /fake routes change the engine's behaviour; `script` is for every request that no other script was given for.
    """

    host: str = "127.0.0.1"
    port: int = 0
    served_model_names: tuple[str, ...] = ("fake-model",)
    api_key: str | None = None

    max_model_len: int | None = None
    kv_blocks: int = 8192
    block_size: int = 16  # as vLLM's default on GPUs
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    enable_prefix_caching: bool = True

    step_base_ms: float = 10.0
    step_per_sequence_ms: float = 0.05
    prefill_tokens_per_s: float = 20000.0
    time_scale: float = 1.0
    zero_latency: bool = False

    seed: int = 0
    output_tokens_min: int = 32
    output_tokens_max: int = 256
    embedding_dimensions: int = 64

    kv_events_endpoint: str | None = None
    kv_events_replay_endpoint: str | None = None
    kv_events_topic: str = ""
    kv_events_format: str = "map"

    scriptable: bool = False
    script: Script = NORMAL
    record_requests: int = 256

    startup_delay_s: float = 0.0
    shutdown_timeout_s: float = 0.0
    keep_alive_timeout_s: float = 5.0  # as vLLM's VLLM_HTTP_TIMEOUT_KEEP_ALIVE

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def context_tokens(self) -> int:
        """The longest prompt and answer, in tokens."""
        if self.max_model_len is not None:
            return self.max_model_len
        return min(DEFAULT_MAX_MODEL_LEN, self.kv_blocks * self.block_size)

    def _problems(self) -> list[str]:
        problems = [
            f"{name} must be at least {least}, got {getattr(self, name)}"
            for name, least in _LEAST.items()
            if getattr(self, name) < least
        ]
        problems += [
            f"{name} must be greater than 0, got {getattr(self, name)}"
            for name in ("prefill_tokens_per_s", "time_scale")
            if getattr(self, name) <= 0
        ]
        if self.port > 65535:
            problems.append(f"port must be at most 65535, got {self.port}")
        if not self.served_model_names or not all(self.served_model_names):
            problems.append("served_model_names must hold at least one name, and no empty one")
        if self.kv_blocks * self.block_size < self.context_tokens:
            problems.append(
                f"kv_blocks x block_size = {self.kv_blocks * self.block_size} tokens must hold one request of "
                f"max_model_len = {self.max_model_len} tokens: raise kv_blocks or lower max_model_len"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            problems.append(
                f"max_num_batched_tokens = {self.max_num_batched_tokens} must not be less than "
                f"max_num_seqs = {self.max_num_seqs}: each running sequence needs one token of a step"
            )
        if self.output_tokens_max < self.output_tokens_min:
            problems.append("output_tokens_max must not be less than output_tokens_min")
        if self.kv_events_format not in ("map", "array"):
            problems.append(f"kv_events_format must be map or array, got {self.kv_events_format}")
        if self.kv_events_replay_endpoint and not self.kv_events_endpoint:
            problems.append("kv_events_replay_endpoint needs kv_events_endpoint")
        if self.kv_events_endpoint and self.zero_latency:
            problems.append("zero_latency has no KV cache and so no kv_events_endpoint")
        return problems


_LEAST: dict[str, int] = {
    "port": 0,
    "context_tokens": 1,
    "kv_blocks": 1,
    "block_size": 1,
    "max_num_seqs": 1,
    "step_base_ms": 0,
    "step_per_sequence_ms": 0,
    "output_tokens_min": 1,
    "embedding_dimensions": 1,
    "record_requests": 0,
    "startup_delay_s": 0,
    "shutdown_timeout_s": 0,
    "keep_alive_timeout_s": 0,
}
