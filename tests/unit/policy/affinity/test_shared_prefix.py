"""Blocks that nearly every request begins with."""

import pytest

from pilothouse.policy.affinity import shared_prefix
from pilothouse.policy.affinity.shared_prefix import SharedPrefix, key_of


def feed(shared: SharedPrefix, count: int, *front: int, start: int = 1_000) -> None:
    for number in range(start, start + count):
        shared.count([*front, number])


def test_the_first_block_of_the_public_trace_is_skipped() -> None:
    shared = SharedPrefix()
    feed(shared, 100, 0)
    assert shared.leading([0, 77]) == 1


def test_a_shared_prefix_of_many_blocks_is_found_block_by_block() -> None:
    shared = SharedPrefix()
    feed(shared, 300, 0, 1, 2)
    assert shared.leading([0, 1, 2, 99]) == 3


def test_nothing_is_shared_among_few_or_different_requests() -> None:
    shared = SharedPrefix()
    feed(shared, 3, 0)
    assert shared.leading([0, 5]) == 0
    feed(shared, 300)
    assert shared.leading([0, 5]) == 0
    assert shared.leading([]) == 0


def test_a_system_prompt_of_half_the_traffic_tells_apart() -> None:
    shared = SharedPrefix()
    for number in range(400):
        shared.count([number % 2, number + 10])
    assert shared.leading([0, 5]) == 0


def test_a_new_system_prompt_is_noticed() -> None:
    shared = SharedPrefix()
    feed(shared, 2_000, 0)
    feed(shared, 3_000, 1)
    assert shared.leading([1, 5]) == 1
    assert shared.leading([0, 5]) == 0


def test_memory_is_bounded() -> None:
    shared = SharedPrefix()
    feed(shared, 20_000)
    assert len(shared) <= 4_096


def test_blocks_beyond_the_bound_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_prefix, "_MOST_TRACKED", 5)
    shared = SharedPrefix()
    feed(shared, 20)
    assert len(shared) == 5


def test_a_request_is_placed_by_its_own_blocks() -> None:
    blocks = [10, 11, 12, 13]
    assert key_of(blocks, 0) == 11
    assert key_of(blocks, 1) == 12
    assert key_of(blocks, 3) == 13
    assert key_of(blocks, 4) is None
    assert key_of([], 0) is None
