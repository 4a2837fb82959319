"""The fake engine's block pool: what is forgotten first, and what is told of it."""

from pilothouse.testing.fake_engine.blocks import BlockPool
from pilothouse.testing.fake_engine.cache_events import BlockRemoved, BlocksCleared


def test_the_block_that_was_freed_first_is_forgotten_first_and_of_a_sequence_its_end() -> None:
    pool = BlockPool(4)
    early, late = pool.take(2), pool.take(2)
    for block, content in zip((*early, *late), (11, 12, 21, 22), strict=True):
        assert pool.remember(block, content)
    pool.give_back(early)
    pool.give_back(late)

    pool.take(1)
    assert pool.drain_events() == [BlockRemoved(block_hashes=[12], medium="GPU")]
    pool.take(2)
    assert pool.drain_events() == [BlockRemoved(block_hashes=[11, 22], medium="GPU")]
    assert pool.remembered == {21}


def test_a_hit_takes_a_block_off_the_free_list() -> None:
    pool = BlockPool(2)
    (block,) = pool.take(1)
    pool.remember(block, 7)
    pool.give_back([block])
    assert pool.free == 2

    found = pool.find(7)
    assert found == block
    pool.hold(block)
    pool.hold(block)
    assert (pool.free, pool.used) == (1, 1)
    pool.give_back([block])
    assert pool.used == 1
    pool.give_back([block])
    assert pool.used == 0
    pool.invariants()


def test_blocks_without_content_are_used_before_remembered_ones_that_were_freed_later() -> None:
    pool = BlockPool(3)
    (block,) = pool.take(1)
    pool.remember(block, 7)
    pool.give_back([block])
    assert block not in pool.take(2)
    assert pool.drain_events() == []


def test_the_same_content_is_remembered_once() -> None:
    pool = BlockPool(2)
    first, second = pool.take(2)
    assert pool.remember(first, 7)
    assert not pool.remember(second, 7)
    assert pool.find(7) == first


def test_forgetting_all_keeps_what_is_held() -> None:
    pool = BlockPool(2)
    (block,) = pool.take(1)
    pool.remember(block, 7)
    pool.forget_all()
    assert pool.find(7) is None
    assert pool.used == 1
    assert pool.drain_events() == [BlocksCleared()]
    pool.give_back([block])
    pool.invariants()
