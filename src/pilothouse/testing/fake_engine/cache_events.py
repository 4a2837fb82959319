"""What a KV cache tells a router about its blocks, as vLLM names it (vllm/distributed/kv_events.py, 0.32 and 0.33).

Hashes are integers of 64 bits. On the wire an event is a msgpack map with `type`, and fields at their default are
left out; old versions sent `[type, *fields]` instead. `kv_events.py` encodes both.
"""

import msgspec


class BlockStored(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Blocks that can be hit from now on, in order. `parent_block_hash` is the block before them in the sequence."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[str, ...] | None] | None = None


class BlockRemoved(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Blocks that were forgotten."""

    block_hashes: list[int]
    medium: str | None


class BlocksCleared(msgspec.Struct, frozen=True, kw_only=True, tag="AllBlocksCleared", omit_defaults=True):
    """Everything was forgotten."""


CacheEvent = BlockStored | BlockRemoved | BlocksCleared
