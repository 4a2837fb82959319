"""What holds for every workload: conservation, fast-forward equal to steps, Little's law, monotonicity."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse.policy.draw import Draws
from pilothouse.simulator.fleet import Fleet, Replica
from pilothouse.simulator.pipeline import PipelineEngine
from pilothouse.simulator.routers import LeastLoaded
from pilothouse.simulator.separate_prefill import SeparatePrefillEngine
from pilothouse.simulator.step_times import EngineLimits
from simulated import PROFILE, engine, served, small_limits, turns

SHAPES = st.lists(st.tuples(st.integers(0, 60_000), st.integers(1, 900), st.integers(1, 150)), min_size=1, max_size=40)
BOUNDED = settings(max_examples=60, deadline=None)


@BOUNDED
@given(SHAPES, st.integers(70, 400))
def test_every_token_and_every_block_is_accounted_for(shapes: list[tuple[int, int, int]], blocks: int) -> None:
    one = engine(small_limits(blocks))
    made = served(one, shapes)
    assert all(turn.produced == turn.output and turn.served for turn in made)
    assert one.pool.free == blocks
    assert 0 <= one.pool.idle <= blocks
    assert one.output_tokens == sum(turn.output for turn in made)
    if one.preemptions == 0:
        assert one.gaps.count == sum(turn.output - 1 for turn in made)
        assert one.prefill_tokens == sum(turn.prompt - turn.cached_tokens for turn in made)
    for turn in made:
        assert turn.arrival_ns == turn.queued_ns <= turn.scheduled_ns < turn.first_ns <= turn.finished_ns


@BOUNDED
@given(SHAPES, st.integers(70, 400))
def test_jumping_and_stepping_agree(shapes: list[tuple[int, int, int]], blocks: int) -> None:
    jumped = served(engine(small_limits(blocks)), shapes)
    stepped = served(engine(small_limits(blocks), stepped=True), shapes)
    tolerance = 2 * (sum(turn.output for turn in jumped) + sum(turn.prompt for turn in jumped))  # a ns or two a step
    for one, other in zip(jumped, stepped, strict=True):
        # Rounding moves a step's end by nanoseconds, which may put an arrival on its other side: a step at most.
        assert abs(one.first_ns - other.first_ns) <= tolerance + 30_000_000
        assert abs(one.finished_ns - other.finished_ns) <= tolerance + 60_000_000


@BOUNDED
@given(SHAPES)
def test_littles_law(shapes: list[tuple[int, int, int]]) -> None:
    """The time integral of the number in the system, from its changes, is the sum of the times in it."""
    made = served(engine(), shapes)
    changes = sorted([(turn.arrival_ns, 1) for turn in made] + [(turn.finished_ns, -1) for turn in made])
    area = present = last = 0
    for at, change in changes:
        area += present * (at - last)
        present, last = present + change, at
    assert present == 0
    assert area == sum(turn.finished_ns - turn.arrival_ns for turn in made)


@BOUNDED
@given(SHAPES, st.integers(2, 5))
def test_pipelines_and_separate_prefill_conserve_too(shapes: list[tuple[int, int, int]], stages: int) -> None:
    pipeline = PipelineEngine(PROFILE, small_limits(150), stages=stages)
    made = served(pipeline, shapes)
    assert all(turn.produced == turn.output and turn.served for turn in made)
    assert pipeline.pool.free == 150
    limits = EngineLimits(kv_blocks=4_000, block_tokens=1, max_batch_tokens=1_024)
    separate = SeparatePrefillEngine(PROFILE.times(limits), limits)
    made = served(separate, shapes)
    assert all(turn.produced == turn.output and turn.served for turn in made)
    assert separate.output_tokens == sum(turn.output for turn in made)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4_000), st.integers(50, 900), st.integers(20, 150)), min_size=60, max_size=90))
def test_twice_the_replicas_are_never_worse(shapes: list[tuple[int, int, int]]) -> None:
    few, many = (_mean_latency(shapes, count) for count in (2, 4))
    assert many <= few * 1.02


def _mean_latency(shapes: list[tuple[int, int, int]], count: int) -> float:
    # A replica's batch is at most 16, so that an overloaded fleet queues.
    replicas = [Replica(str(index), engine(small_limits(2_000))) for index in range(count)]
    fleet = Fleet(replicas, LeastLoaded(count, Draws(0)))
    columns = fleet.run(turns(shapes)).records.columns
    total = sum(columns["finished_ns"]) - sum(columns["arrival_ns"])
    return total / len(shapes)
