import pytest

from pilothouse.simulator.calibration import run_alone
from pilothouse.simulator.engine import Engine
from pilothouse.simulator.step_times import EngineLimits, StepTimes
from pilothouse.simulator.turn import Turn
from simulated import engine, served, small_limits, turns

MS = 1_000_000


def flat(limits: EngineLimits) -> StepTimes:
    """Every step takes 10 ms, and 1 ms more for each 100 tokens of context."""
    return StepTimes(
        dense_ms=((0, 10.0),),
        sampled_ms=(),
        kv_ms=0.01,
        kv_mixed_ms=0.01,
        pair_ms=0.0,
        overhead_ms=0.0,
        prefill_ms=0.0,
        decode_sequence_ms=0.0,
        experts=None,
        limits=limits,
    )


def test_one_turn_takes_its_prefill_and_its_steps() -> None:
    limits = small_limits()
    one = Engine(flat(limits), limits)
    (turn,) = served(one, [(0, 100, 3)])
    assert turn.first_ns == 10 * MS
    # Contexts of 101 and 102 tokens in the two decode steps.
    assert turn.finished_ns == pytest.approx(10 * MS + (10 + 1.01) * MS + (10 + 1.02) * MS, abs=2)


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    limits = small_limits(kv_blocks=400)
    one = Engine(flat(limits), limits)
    (turn,) = served(one, [(0, 1_000, 1)])
    assert turn.first_ns == 4 * 10 * MS  # 256 + 256 + 256 + 232
    assert one.prefill_tokens == 1_000


def test_an_arrival_waits_for_the_end_of_the_running_step() -> None:
    limits = small_limits()
    one = Engine(flat(limits), limits)
    first, second = served(one, [(0, 1, 50), (25_000, 1, 1)])
    assert 30 * MS < second.scheduled_ns < 31 * MS
    assert first.produced == 50


def test_a_full_cache_preempts_the_youngest_and_serves_it_in_the_end() -> None:
    one = engine(small_limits(kv_blocks=20))
    oldest, youngest = served(one, [(0, 150, 120), (0, 100, 120)])
    assert one.preemptions > 0
    assert oldest.preemptions == 0
    assert youngest.preemptions > 0
    assert youngest.finished_ns > oldest.finished_ns


def test_a_shared_prefix_is_computed_once() -> None:
    one = engine(small_limits(kv_blocks=400))
    first, second = turns([(0, 320, 2), (0, 320, 2)])
    second.arrival_ns = 10**9
    run_alone(one, [first, second])
    assert (first.cached_tokens, second.cached_tokens) == (0, 160)


def test_what_never_fits_is_refused() -> None:
    with pytest.raises(ValueError, match="never fit"):
        engine(small_limits(kv_blocks=4)).submit(Turn("x", 0, 100, 1), 0)


def test_a_crash_returns_everything_and_leaves_an_empty_engine() -> None:
    one = engine()
    made = turns([(0, 100, 10), (0, 100, 10)])
    for turn in made:
        one.submit(turn, 0)
    one.advance()
    assert set(one.crash()) == set(made)
    assert one.pool.free == 200
    run_alone(one, made[:1])
    assert made[0].produced == 10
