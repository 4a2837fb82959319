"""Loads of replicas: own, reported, stale."""

import pytest

from pilothouse.model.units import SECOND, MonotonicNs, seconds
from pilothouse.policy.routing.load import STALE, LoadBook, RecentWork

NOW = MonotonicNs(1_000 * SECOND)
LONG_AGO = MonotonicNs(NOW - STALE - 1)


def test_load_counts_until_the_end_of_the_turn() -> None:
    book = LoadBook(2)
    book.started(0, 100)
    book.started(0, 50)
    book.ended(0, 100)
    assert book.loads(NOW) == [50, 0]


def test_in_flight_is_never_negative() -> None:
    """vllm-project/router #177: a counter below zero draws all traffic to one replica."""
    book = LoadBook(1)
    book.started(0, 10)
    book.ended(0, 10)
    with pytest.raises(ValueError, match="more ended than started"):
        book.ended(0, 10)
    assert book.loads(NOW) == [0]


def test_what_was_sent_since_the_last_poll_counts() -> None:
    """smg least_load: without it a burst between two polls all goes to whoever was idle."""
    book = LoadBook(2)
    book.reported(0, 0, NOW)
    book.reported(1, 300, NOW)
    book.started(0, 400)
    assert book.loads(NOW) == [400, 300]
    book.reported(0, 900, NOW)
    assert book.loads(NOW) == [900, 300]
    book.started(0, 50)
    book.ended(0, 400)
    assert book.loads(NOW) == [900, 300]


def test_stale_metrics_neither_stop_traffic_nor_look_idle() -> None:
    """llm-d-router #2100, #2547."""
    book = LoadBook(3)
    book.reported(0, 0, LONG_AGO)
    book.reported(1, 100, NOW)
    book.reported(2, 300, NOW)
    assert book.loads(NOW) == [200, 100, 300]
    book.started(0, 250)
    assert book.loads(NOW) == [250, 100, 300]


def test_a_long_turn_is_not_reaped_when_all_metrics_are_stale() -> None:
    """llm-d-router #2295: live requests were dropped from the count after a time."""
    book = LoadBook(2)
    book.reported(0, 5_000, LONG_AGO)
    book.reported(1, 0, LONG_AGO)
    book.started(1, 10)
    assert book.loads(NOW) == [0, 10]
    assert book.loads(MonotonicNs(NOW + 86_400 * SECOND)) == [0, 10]


def test_recent_work_fades() -> None:
    work = RecentWork(2, seconds(10))
    assert work.loads(NOW) == [0, 0]
    work.given(0, 1_000)
    assert work.loads(NOW) == [1_000, 0]
    assert work.loads(MonotonicNs(NOW + 10 * SECOND)) == [367, 0]
