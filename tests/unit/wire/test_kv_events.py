"""KV events of vLLM and SGLang."""

from typing import Any

import msgspec
import pytest

from pilothouse.testing.fake_engine.cache_events import BlocksCleared, BlockStored
from pilothouse.wire import kv_events
from pilothouse.wire.kv_events import AllCleared, BlocksRemoved, BlocksStored, KvEventError, read_batch

encode = msgspec.msgpack.encode


def batch(*events: Any, rank: int = 0) -> bytes:
    return encode([1.5, list(events), rank])


STORED = {
    "type": "BlockStored",
    "block_hashes": [7, 8],
    "parent_block_hash": 6,
    "token_ids": [1, 2, 3, 4],
    "block_size": 2,
    "lora_id": None,
    "medium": "GPU",
}


def test_maps_as_vllm_sends_them() -> None:
    found = read_batch(batch(STORED, {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU"}, rank=3))
    assert found.rank == 3
    assert found.events == (
        BlocksStored(hashes=(7, 8), parent=6, token_ids=(1, 2, 3, 4), block_size=2, medium="GPU"),
        BlocksRemoved(hashes=(7,), medium="GPU"),
    )


def test_arrays_as_older_ones_send_them() -> None:
    stored = ["BlockStored", [7], None, [1, 2], 2, None, "GPU", None, [["salt"]], "a field of the future"]
    found = read_batch(batch(stored, ["BlockRemoved", [b"\x01\x02"]], ["AllBlocksCleared"]))
    assert found.events == (
        BlocksStored(hashes=(7,), parent=None, token_ids=(1, 2), block_size=2, medium="GPU", keys=("salt",)),
        BlocksRemoved(hashes=(b"\x01\x02",)),
        AllCleared(),
    )


def test_what_the_fake_engine_sends() -> None:
    event = BlockStored(
        block_hashes=[5],
        parent_block_hash=None,
        token_ids=[1],
        block_size=1,
        lora_id=None,
        medium="GPU",
        lora_name=None,
    )
    assert read_batch(batch(event, BlocksCleared())).events == (
        BlocksStored(hashes=(5,), parent=None, token_ids=(1,), block_size=1, medium="GPU"),
        AllCleared(),
    )


def test_salts_of_both_engines_are_keys() -> None:
    vllm = {**STORED, "extra_keys": [["acme", ["image", 3]], None]}
    sglang = {**STORED, "cache_salt": "acme", "lora_name": "tuned"}
    keys = [event.keys for event in read_batch(batch(vllm, sglang)).events if isinstance(event, BlocksStored)]
    assert keys == [("acme\0image\x003", ""), ("acme\0tuned", "acme\0tuned")]


def test_unknown_events_and_fields_are_skipped() -> None:
    found = read_batch(batch({"type": "BlockSplit"}, ["Other", 1], [3], {**STORED, "session_id": "s"}))
    assert len(found.events) == 1
    assert read_batch(encode([1.0, []])).rank == 0


@pytest.mark.parametrize(
    "payload",
    [
        b"\xc1",
        b"",
        encode({"a": 1}),
        encode([1.0]),
        encode([1.0, {}]),
        batch(5),
        batch([]),
        batch({**STORED, "block_hashes": "x"}),
        batch({**STORED, "block_hashes": [True]}),
        batch({**STORED, "parent_block_hash": "x"}),
        batch({**STORED, "token_ids": [None]}),
        batch({**STORED, "block_size": 0}),
        batch({"type": "BlockRemoved"}),
    ],
)
def test_what_no_engine_sends_is_an_error(payload: bytes) -> None:
    with pytest.raises(KvEventError):
        read_batch(payload)


def test_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_events, "MAX_PAYLOAD_BYTES", 10)
    with pytest.raises(KvEventError, match="bytes"):
        read_batch(batch(STORED))


def test_numbers_of_batches() -> None:
    assert kv_events.sequence_number((5).to_bytes(8, "big")) == 5
    assert kv_events.sequence_number(b"\xff" * 8) == kv_events.END_OF_REPLAY
    assert kv_events.replay_request(5) == (5).to_bytes(8, "big")
    with pytest.raises(KvEventError):
        kv_events.sequence_number(b"12")
