"""KV cache events of vLLM and SGLang: a msgpack batch of events, as maps (newer) or arrays (older).

Frames are [topic, sequence number as 8 bytes big-endian, payload], the payload the array [time, events, rank]; the
shapes are those of vllm/distributed/kv_events.py (0.32) and sglang/srt/disaggregation/kv_events.py. Unknown events and
fields are skipped. An engine is not trusted: whatever is malformed is an error, and sizes are bounded.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
"""A step can store as many blocks as a prompt has; 64 MiB is a million tokens with room to spare."""

END_OF_REPLAY = -1

Hash = int | bytes
"""As emitted: the low 64 bits of the engine's digest, or all of it."""


class BlocksStored(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that can be hit from now on. `parent` is the block before the first; `keys` are what salts them.

    `medium` is where they are (`GPU`, `CPU`, ...; `None` for engines with one). `token_ids` are those of all blocks,
    `keys[i]` the extra keys of block i as text (a tenant's salt, an adapter, an image), empty where there are none.
    """

    hashes: tuple[Hash, ...]
    parent: Hash | None
    token_ids: tuple[int, ...]
    block_size: int
    medium: str | None = None
    keys: tuple[str, ...] = ()


class BlocksRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that were forgotten in one medium."""

    hashes: tuple[Hash, ...]
    medium: str | None = None


class AllCleared(msgspec.Struct, frozen=True, kw_only=True):
    """Everything was forgotten."""


KvEvent = BlocksStored | BlocksRemoved | AllCleared


class KvBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch. `rank` is the data-parallel rank that published it."""

    events: tuple[KvEvent, ...]
    rank: int = 0


class KvEventError(ValueError):
    """Raised for frames that are not what an engine sends."""


_STORED = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
)
_REMOVED = ("block_hashes", "medium")
_decode = msgspec.msgpack.Decoder().decode
_TAGS = {"BlockStored": _STORED, "BlockRemoved": _REMOVED, "AllBlocksCleared": ()}


def sequence_number(frame: bytes) -> int:
    """The number in the second frame; -1 ends a replay."""
    if len(frame) != 8:
        raise KvEventError(f"a sequence number has 8 bytes, not {len(frame)}")
    return int.from_bytes(frame, "big", signed=True)


def replay_request(start: int) -> bytes:
    """What to ask the replay socket, after an empty frame: the first sequence number wanted."""
    return start.to_bytes(8, "big")


def read_batch(payload: bytes) -> KvBatch:
    """Decode a payload. Raises KvEventError."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise KvEventError(f"a batch of {len(payload)} bytes")
    try:
        batch = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KvEventError(str(error)) from None
    if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list):
        raise KvEventError("a batch is [time, events, rank]")
    rank = batch[2] if len(batch) > 2 and isinstance(batch[2], int) else 0
    return KvBatch(events=tuple(event for one in batch[1] if (event := _event(one)) is not None), rank=rank)


def _event(raw: Any) -> KvEvent | None:
    """One event; `None` for a kind that we do not know."""
    if isinstance(raw, dict):
        tag, fields = raw.get("type"), raw
    elif isinstance(raw, list) and raw:
        tag = raw[0]
        fields = dict(zip(_TAGS.get(tag, ()) if isinstance(tag, str) else (), raw[1:], strict=False))
    else:
        raise KvEventError("an event is a map or an array")
    if tag == "AllBlocksCleared":
        return AllCleared()
    if tag == "BlockStored":
        return _stored(fields)
    if tag == "BlockRemoved":
        return BlocksRemoved(hashes=_hashes(fields.get("block_hashes")), medium=_text(fields.get("medium")))
    return None


def _stored(fields: dict[str, Any]) -> BlocksStored:
    hashes = _hashes(fields.get("block_hashes"))
    parent = fields.get("parent_block_hash")
    tokens, size = fields.get("token_ids"), fields.get("block_size")
    if parent is not None and not _is_hash(parent):
        raise KvEventError("a parent is a hash or nothing")
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise KvEventError("token ids are integers")
    if type(size) is not int or size <= 0:
        raise KvEventError("a block size is a positive integer")
    keys = fields.get("extra_keys")
    salt, lora = fields.get("cache_salt"), fields.get("lora_name")
    shown = [_key_text(key) for key in keys] if isinstance(keys, list) else []
    if not shown and (salt or lora):
        # SGLang names the salt once for the event; vLLM names it among the keys of each block.
        shown = [_key_text([part for part in (salt, lora) if part])] * len(hashes)
    return BlocksStored(
        hashes=hashes,
        parent=parent,
        token_ids=tuple(tokens),
        block_size=size,
        medium=_text(fields.get("medium")),
        keys=tuple(shown) if any(shown) else (),
    )


def _hashes(value: Any) -> tuple[Hash, ...]:
    if not isinstance(value, list) or not all(_is_hash(one) for one in value):
        raise KvEventError("block hashes are integers or byte strings")
    return tuple(value)


def _is_hash(value: Any) -> bool:
    return type(value) is int or isinstance(value, bytes)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _key_text(value: Any) -> str:
    """Extra keys as one text; nothing for none."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return "" if value is None else str(value)
    return "\0".join(_key_text(one) for one in value)
