import struct
from pathlib import Path
from typing import Any

import pytest

from pilothouse.engines.gguf import GgufShape, read_shape

U32, STRING, ARRAY = 4, 8, 9


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, value: Any) -> bytes:
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, list):
        kind = STRING if value and isinstance(value[0], str) else U32
        items = b"".join(text(each) if kind == STRING else struct.pack("<I", each) for each in value)
        return text(key) + struct.pack("<IIQ", ARRAY, kind, len(value)) + items
    return text(key) + struct.pack("<II", U32, value)


def head(entries: dict[str, Any], *, magic: bytes = b"GGUF", version: int = 3, count: int | None = None) -> bytes:
    body = b"".join(entry(key, value) for key, value in entries.items())
    return struct.pack("<4sIQQ", magic, version, 0, len(entries) if count is None else count) + body


SMOLLM2 = {
    "general.architecture": "llama",
    "general.tags": ["text", "chat"],
    "llama.block_count": 30,
    "llama.context_length": 8192,
    "llama.embedding_length": 576,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "tokenizer.ggml.tokens": ["a", "b"],
}


def shape_of(tmp_path: Path, content: bytes) -> GgufShape | None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    return read_shape(path)


@pytest.mark.parametrize("version", [2, 3])
def test_grouped_heads_are_counted_over_all_layers(tmp_path: Path, version: int) -> None:
    # 30 layers, 3 heads for keys and values, each 576 / 9 = 64 wide.
    expected = GgufShape(context_length=8192, k_values_per_token=5760, v_values_per_token=5760)
    assert shape_of(tmp_path, head(SMOLLM2, version=version)) == expected


def test_every_head_has_keys_where_no_grouping_is_given(tmp_path: Path) -> None:
    entries = {key: value for key, value in SMOLLM2.items() if key != "llama.attention.head_count_kv"}
    found = shape_of(tmp_path, head(entries))
    assert found is not None
    assert found.k_values_per_token == 30 * 576


def test_widths_of_keys_and_values_may_be_given(tmp_path: Path) -> None:
    widths = {"llama.attention.key_length": 128, "llama.attention.value_length": 96}
    found = shape_of(tmp_path, head({**widths, **SMOLLM2}))
    assert found is not None
    assert (found.k_values_per_token, found.v_values_per_token) == (30 * 3 * 128, 30 * 3 * 96)


def test_layers_without_a_cache_count_nothing(tmp_path: Path) -> None:
    found = shape_of(tmp_path, head({**SMOLLM2, "llama.attention.head_count_kv": [4, 0, 0, 2]}))
    assert found is not None
    assert found.k_values_per_token == 6 * 64


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        head(SMOLLM2, magic=b"GGML"),
        head(SMOLLM2, version=1),
        head(SMOLLM2, count=2**60),
        head({"general.architecture": "llama"}),
        head({**SMOLLM2, "llama.attention.head_count": 0}),
        head({"general.architecture": 7}),
        head({}) + text("x") + struct.pack("<I", 99),
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text("x") + struct.pack("<IIQ", ARRAY, U32, 2**50),
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text("x") + struct.pack("<I", 99),
    ],
)
def test_what_is_not_such_a_file_gives_nothing(tmp_path: Path, content: bytes) -> None:
    assert shape_of(tmp_path, content) is None


def test_a_file_cut_at_any_byte_gives_nothing_or_the_whole(tmp_path: Path) -> None:
    whole = head(SMOLLM2)
    results = {shape_of(tmp_path, whole[:size]) for size in range(1, len(whole) + 1)}
    assert results == {None, read_shape(tmp_path / "model.gguf")}
    # Only from the tokenizer's entries on, which are not read, may a cut go unnoticed.
    before_tokenizer = len(head({key: value for key, value in SMOLLM2.items() if not key.startswith("tokenizer.")}))
    assert all(shape_of(tmp_path, whole[:size]) is None for size in range(1, before_tokenizer))


def test_a_missing_file_gives_nothing(tmp_path: Path) -> None:
    assert read_shape(tmp_path / "none.gguf") is None
