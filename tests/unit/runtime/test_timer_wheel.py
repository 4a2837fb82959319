"""Time-outs fire once, never early, and at most three ticks late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.model.units import DurationNs, MonotonicNs
from pilothouse.runtime.timer_wheel import NEVER, TICK, UNPLACED, TimerWheel

START = MonotonicNs(10 * TICK + 3)


class Entry:
    def __init__(self, wheel: TimerWheel) -> None:
        self.deadline = NEVER
        self.visited_at = UNPLACED
        self.fired: list[int] = []
        self.wheel = wheel

    def on_deadline(self) -> None:
        self.fired.append(self.wheel.now)


def turned(wheel: TimerWheel, ticks: int) -> None:
    for _ in range(ticks):
        wheel.turn(MonotonicNs(wheel.now + TICK))


@given(delay=st.integers(0, 20 * TICK), lag=st.integers(0, TICK - 1))
def test_it_fires_once_not_early_and_not_late(delay: int, lag: int) -> None:
    wheel = TimerWheel(START)
    entry = Entry(wheel)
    wheel.arm(entry, DurationNs(delay))
    armed_at = START + lag  # the wheel's time lags behind the true one by up to a tick
    turned(wheel, 30)
    (fired,) = entry.fired
    assert armed_at + delay - lag <= fired <= armed_at + delay + 3 * TICK
    assert entry.deadline == NEVER


def test_arming_again_moves_the_deadline_back() -> None:
    wheel = TimerWheel(START)
    entry = Entry(wheel)
    for _ in range(20):
        wheel.arm(entry, DurationNs(4 * TICK))
        turned(wheel, 2)
    assert entry.fired == []
    turned(wheel, 8)
    assert len(entry.fired) == 1


def test_arming_again_moves_the_deadline_forward() -> None:
    wheel = TimerWheel(START)
    entry = Entry(wheel)
    wheel.arm(entry, DurationNs(1000 * TICK))
    wheel.arm(entry, DurationNs(2 * TICK))
    turned(wheel, 5)
    assert len(entry.fired) == 1
    turned(wheel, 1010)
    assert len(entry.fired) == 1, "the first place on the wheel is left empty"


def test_what_is_disarmed_does_not_fire_and_may_be_armed_again() -> None:
    wheel = TimerWheel(START)
    entry = Entry(wheel)
    wheel.arm(entry, DurationNs(2 * TICK))
    wheel.disarm(entry)
    turned(wheel, 10)
    assert entry.fired == []
    wheel.arm(entry, DurationNs(2 * TICK))
    turned(wheel, 10)
    assert len(entry.fired) == 1


def test_a_wheel_that_was_stopped_catches_up() -> None:
    wheel = TimerWheel(START)
    entries = [Entry(wheel) for _ in range(5)]
    for number, entry in enumerate(entries):
        wheel.arm(entry, DurationNs(number * TICK))
    wheel.turn(MonotonicNs(START + 100 * TICK))
    assert [len(entry.fired) for entry in entries] == [1] * 5


def test_an_entry_that_arms_itself_when_it_fires_goes_on() -> None:
    wheel = TimerWheel(START)

    class Again(Entry):
        def on_deadline(self) -> None:
            super().on_deadline()
            self.wheel.arm(self, DurationNs(TICK))

    entry = Again(wheel)
    wheel.arm(entry, DurationNs(TICK))
    turned(wheel, 30)
    assert len(entry.fired) == pytest.approx(10, abs=3)


def test_time_that_stands_still_fires_nothing() -> None:
    wheel = TimerWheel(START)
    entry = Entry(wheel)
    wheel.arm(entry, DurationNs(0))
    for _ in range(5):
        wheel.turn(START)
    assert entry.fired == []
