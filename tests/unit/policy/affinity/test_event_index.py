"""The precise index, by what engines say."""

from pilothouse.policy.affinity.event_index import BatchOrder, EventIndex, Verdict


def test_blocks_are_found_by_their_tokens_whatever_the_engines_call_them() -> None:
    index = EventIndex(3)
    index.stored(0, [11, 12], None, [1, 2, 3, 4], 2)
    index.stored(1, [b"x"], None, [1, 2], 2)
    assert index.matched([1, 2, 3, 4, 5, 6], 2) == [4, 2, 0]
    assert index.matched([1, 9], 2) == [0, 0, 0]
    assert index.matched([1], 2) == [0, 0, 0]


def test_a_chain_goes_on_behind_its_parent() -> None:
    index = EventIndex(1)
    index.stored(0, [11], None, [1, 2], 2)
    index.stored(0, [12], 11, [3, 4], 2)
    assert index.matched([1, 2, 3, 4], 2) == [4]
    assert index.matched([3, 4], 2) == [0]


def test_blocks_behind_an_unknown_parent_are_counted_and_left_out() -> None:
    index = EventIndex(1)
    index.stored(0, [12, 13], 11, [3, 4, 5, 6], 2)
    assert (index.orphans, len(index)) == (2, 0)


def test_a_tenants_salt_tells_its_blocks_apart() -> None:
    index = EventIndex(1)
    index.stored(0, [11, 12], None, [1, 2, 3, 4], 2, keys=["acme"])
    assert index.matched([1, 2, 3, 4], 2) == [0]
    assert index.matched([1, 2, 3, 4], 2, ["acme"]) == [4]


def test_removed_blocks_are_forgotten_at_that_replica_only() -> None:
    index = EventIndex(2)
    for slot in (0, 1):
        index.stored(slot, [11, 12], None, [1, 2, 3, 4], 2)
    index.removed(0, [12, 99])
    assert index.matched([1, 2, 3, 4], 2) == [2, 4]
    index.removed(1, [12])
    assert len(index) == 1


def test_other_media_are_not_followed() -> None:
    index = EventIndex(1)
    index.stored(0, [11], None, [1, 2], 2, medium="CPU")
    assert index.matched([1, 2], 2) == [0]
    index.stored(0, [11], None, [1, 2], 2, medium="GPU")
    index.removed(0, [11], medium="CPU")
    assert index.matched([1, 2], 2) == [2]


def test_a_name_used_again_for_other_tokens_replaces_them() -> None:
    index = EventIndex(1)
    index.stored(0, [11], None, [1, 2], 2)
    index.stored(0, [11], None, [1, 2], 2)
    index.stored(0, [11], None, [5, 6], 2)
    assert index.matched([1, 2], 2) == [0]
    assert index.matched([5, 6], 2) == [2]


def test_a_cleared_replica_holds_nothing() -> None:
    index = EventIndex(2)
    for slot in (0, 1):
        index.stored(slot, [11], None, [1, 2], 2)
    index.cleared(0)
    assert index.matched([1, 2], 2) == [0, 2]
    index.cleared(1)
    assert len(index) == 0


def test_batches_in_order_are_applied() -> None:
    order = BatchOrder()
    assert [order.live(number) for number in range(3)] == [Verdict.APPLY] * 3


def test_a_gap_is_filled_by_a_replay() -> None:
    order = BatchOrder()
    order.live(0)
    assert order.live(3) is Verdict.REPLAY
    assert order.replaying
    assert order.expected == 1
    assert order.live(4) is Verdict.SKIP
    assert [order.replayed(number) for number in (0, 1, 2, 3, 4, 5)] == [Verdict.SKIP] + [Verdict.APPLY] * 5
    assert not order.replay_ended()
    assert order.live(5) is Verdict.SKIP
    assert order.live(6) is Verdict.APPLY


def test_who_comes_late_asks_for_what_was_before() -> None:
    assert BatchOrder().live(7) is Verdict.REPLAY


def test_batches_that_the_engine_forgot_clear_the_index() -> None:
    order = BatchOrder()
    order.live(0)
    order.live(9)
    assert order.replayed(5) is Verdict.CLEAR_AND_APPLY
    assert [order.replayed(number) for number in (6, 7, 8, 9)] == [Verdict.APPLY] * 4
    assert not order.replay_ended()


def test_without_a_replay_socket_what_is_missing_is_lost() -> None:
    order = BatchOrder()
    assert order.live(3) is Verdict.REPLAY
    assert order.replay_ended()
    assert order.live(4) is Verdict.APPLY


def test_an_engine_restarted_in_place_counts_from_zero_again() -> None:
    """llm-d-router #1736: the index of a restarted worker went on as if its cache were there."""
    order = BatchOrder()
    for number in range(5):
        order.live(number)
    assert order.live(0) is Verdict.CLEAR_AND_APPLY
    assert order.live(1) is Verdict.APPLY
