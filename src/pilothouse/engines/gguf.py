"""The few numbers of a GGUF file's head that tell how much memory its cache needs.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import mmap
import struct
from pathlib import Path
from typing import Any

import msgspec

_MAGIC = b"GGUF"
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MAX_ENTRIES = 65_536  # a real head has under a hundred; more means the file is not what it says


class GgufShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a token costs: the numbers that the K cache and the V cache hold for it over all layers."""

    context_length: int
    k_values_per_token: int
    v_values_per_token: int


def read_shape(path: Path) -> GgufShape | None:
    """The shape of the model in the file, `None` if its head cannot be read as GGUF or lacks the numbers."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _shape(_entries(data))
    except (OSError, ValueError, struct.error, KeyError, TypeError, ZeroDivisionError):
        return None


def _shape(entries: dict[str, Any]) -> GgufShape:
    architecture = entries["general.architecture"]

    def number(name: str, default: int | None = None) -> int:
        value = entries.get(f"{architecture}.{name}", default)
        if value is None:
            raise KeyError(name)
        return int(value)

    layers = number("block_count")
    heads = entries[f"{architecture}.attention.head_count"]
    kv_heads = entries.get(f"{architecture}.attention.head_count_kv", heads)
    most_heads = max(heads) if isinstance(heads, list) else heads
    head_size = number("embedding_length") // most_heads
    # Hybrid models give one count a layer, and 0 for layers without a cache.
    kv_heads_of_all_layers = sum(kv_heads) if isinstance(kv_heads, list) else kv_heads * layers
    return GgufShape(
        context_length=number("context_length"),
        k_values_per_token=kv_heads_of_all_layers * number("attention.key_length", head_size),
        v_values_per_token=kv_heads_of_all_layers * number("attention.value_length", head_size),
    )


def _entries(data: mmap.mmap) -> dict[str, Any]:
    """The head's entries up to the tokenizer's, which come last and are large."""
    magic, version, _tensors, count = struct.unpack_from("<4sIQQ", data)
    if magic != _MAGIC or version not in {2, 3} or count > _MAX_ENTRIES:
        raise ValueError("not a GGUF file of version 2 or 3")
    entries: dict[str, Any] = {}
    at = struct.calcsize("<4sIQQ")
    for _ in range(count):
        key, at = _string(data, at)
        if key.startswith("tokenizer."):
            break
        (kind,) = struct.unpack_from("<I", data, at)
        entries[key], at = _value(data, at + 4, kind)
    return entries


def _value(data: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    if kind == _STRING:
        return _string(data, at)
    if kind == _ARRAY:
        item_kind, length = struct.unpack_from("<IQ", data, at)
        if length > len(data):
            raise ValueError("an array longer than the file")
        at += struct.calcsize("<IQ")
        items = []
        for _ in range(length):
            item, at = _value(data, at, item_kind)
            items.append(item)
        return items, at
    layout = _SCALARS[kind]
    return struct.unpack_from(layout, data, at)[0], at + struct.calcsize(layout)


def _string(data: mmap.mmap, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    end = at + 8 + length
    if end > len(data):
        raise ValueError("a text longer than the file")
    return data[at + 8 : end].decode("utf-8", "replace"), end
