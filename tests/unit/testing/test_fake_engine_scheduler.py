"""The fake engine's scheduler: batching, paging, prefix cache and preemption, step by step."""

from array import array

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from pilothouse.testing.fake_engine.cache_events import BlockRemoved, BlocksCleared, BlockStored
from pilothouse.testing.fake_engine.scheduler import Scheduler, SchedulerLimits, Sequence, Step

BLOCK = 4


def scheduler(**limits: int | bool) -> Scheduler:
    values: dict[str, int | bool] = {"blocks": 16, "block_size": BLOCK, "max_sequences": 8, "max_batched_tokens": 64}
    return Scheduler(SchedulerLimits(**{**values, **limits}))  # type: ignore[arg-type]


def sequence(prompt: int | list[int], output: int, *, first: int = 0, salt: str = "") -> Sequence:
    """A prompt of that many tokens (or these), and an answer; `first` makes the content differ."""
    ids = [first + index for index in range(prompt)] if isinstance(prompt, int) else prompt
    return Sequence(array("I", ids), array("I", range(10_000, 10_000 + output)), salt=salt)


def step(engine: Scheduler) -> tuple[Step, list[Sequence]]:
    begun = engine.begin_step()
    assert begun is not None
    return begun, engine.finish_step(begun)


def run(engine: Scheduler, limit: int = 10_000) -> int:
    """Steps until nothing is left to compute."""
    for count in range(limit):
        begun = engine.begin_step()
        if begun is None:
            return count
        engine.finish_step(begun)
        engine.pool.invariants()
    raise AssertionError("never idle")


def test_a_sequence_prefills_then_decodes_a_token_a_step() -> None:
    engine = scheduler()
    only = sequence(6, 3)
    engine.add(only)

    first, progressed = step(engine)
    assert (first.prefill_tokens, first.decodes) == (6, 0)
    assert progressed == [only]
    assert only.generated == 1

    second, _ = step(engine)
    assert (second.prefill_tokens, second.decodes) == (0, 1)
    third, progressed = step(engine)
    assert (third.prefill_tokens, third.decodes) == (0, 1)
    assert only.finished
    assert progressed == [only]
    assert engine.begin_step() is None
    assert engine.pool.used == 0
    assert engine.finished == {"length": 1}
    assert (engine.prompt_tokens, engine.generation_tokens) == (6, 3)


def test_decodes_come_before_prefills_and_a_long_prompt_is_computed_in_chunks() -> None:
    engine = scheduler(max_batched_tokens=10)
    short, long = sequence(4, 5), sequence(25, 1, first=100)
    engine.add(short)
    step(engine)
    engine.add(long)

    chunks = []
    while not long.finished:
        begun, _ = step(engine)
        chunks.append((begun.decodes, begun.prefill_tokens))

    assert chunks == [(1, 9), (1, 9), (1, 7)]
    assert short.generated == 4


def test_no_more_sequences_run_than_allowed_and_the_first_come_first() -> None:
    engine = scheduler(max_sequences=2)
    sequences = [sequence(4, 2, first=100 * index) for index in range(4)]
    for each in sequences:
        engine.add(each)

    step(engine)
    assert engine.running == sequences[:2]
    assert list(engine.waiting) == sequences[2:]
    step(engine)
    step(engine)
    assert engine.running == sequences[2:]


def test_a_head_that_does_not_fit_blocks_those_behind_it() -> None:
    engine = scheduler(blocks=4)
    holder, big, small = sequence(8, 8), sequence(12, 1, first=100), sequence(1, 1, first=200)
    for each in (holder, big, small):
        engine.add(each)
    step(engine)
    assert engine.running == [holder]
    run(engine)
    assert big.finished
    assert small.finished


def test_a_shared_prefix_is_hit_in_whole_blocks_but_never_wholly() -> None:
    engine = scheduler()
    first = sequence(8, 1)
    engine.add(first)
    run(engine)

    same, longer = sequence(8, 1), sequence(11, 1)
    engine.add(same)
    engine.add(longer)
    begun, _ = step(engine)

    # The last token is computed in any case, so of eight equal tokens only the first block counts.
    assert same.cached_tokens == 4
    assert longer.cached_tokens == 8
    assert begun.prefill_tokens == 4 + 3
    assert (engine.prefix_queries, engine.prefix_hits) == (8 + 8 + 11, 4 + 8)


def test_running_sequences_share_the_blocks_of_their_prefix() -> None:
    engine = scheduler()
    engine.add(sequence(9, 4))
    step(engine)
    engine.add(sequence(9, 4))
    step(engine)
    # Two blocks are shared; each has a third of its own.
    assert engine.pool.used == 2 + 1 + 1
    engine.pool.invariants()


def test_a_salt_separates_prefixes() -> None:
    engine = scheduler()
    engine.add(sequence(8, 1, salt="a"))
    run(engine)
    other, same = sequence(8, 1, salt="b"), sequence(8, 1, salt="a")
    engine.add(other)
    engine.add(same)
    step(engine)
    assert (other.cached_tokens, same.cached_tokens) == (0, 4)


def test_the_answer_of_one_turn_is_hit_in_the_next() -> None:
    engine = scheduler()
    turn = sequence(6, 7)
    engine.add(turn)
    run(engine)
    following = Sequence(turn.tokens + array("I", [1, 2]), array("I", [3]))
    engine.add(following)
    step(engine)
    # 13 tokens, of which the last answer token was never computed: three full blocks.
    assert following.cached_tokens == 12


def test_without_prefix_caching_nothing_is_hit_or_told() -> None:
    engine = scheduler(prefix_caching=False)
    for _ in range(2):
        engine.add(sequence(8, 2))
        run(engine)
    assert engine.prefix_hits == engine.prefix_queries == 0
    assert engine.drain_events() == []


def test_the_last_to_come_is_preempted_and_computed_again() -> None:
    engine = scheduler(blocks=5, prefix_caching=False)
    old, young = sequence(8, 8), sequence(8, 8, first=100)
    engine.add(old)
    engine.add(young)
    step(engine)
    assert engine.running == [old, young]

    begun = engine.begin_step()  # both need a block for their ninth token, and one is left
    assert begun is not None
    assert [scheduled for scheduled, _ in begun.scheduled] == [old]
    assert list(engine.waiting) == [young]
    assert (young.preemptions, engine.preemptions, young.computed, young.blocks) == (1, 1, 0, [])
    assert young.generated == 1
    engine.finish_step(begun)
    run(engine)
    assert (old.generated, young.generated) == (8, 8)
    assert engine.generation_tokens == 16
    assert engine.prompt_tokens == 16


def test_a_preempted_sequence_finds_its_own_blocks_again() -> None:
    engine = scheduler(blocks=6)
    old, young = sequence(8, 12), sequence(8, 12, first=100)
    engine.add(old)
    engine.add(young)
    while not engine.preemptions:
        step(engine)
    run(engine)
    assert young.finished
    assert young.cached_tokens == 0  # what is reported is the first admission's
    assert engine.prefix_queries == 16  # and only that is counted


def test_removal_frees_blocks_at_once_and_counts_its_reason() -> None:
    engine = scheduler()
    running, waiting = sequence(8, 8), sequence(8, 8, first=100)
    engine.add(running)
    begun = engine.begin_step()
    assert begun is not None
    engine.add(waiting)

    assert engine.remove(running, "abort")
    assert engine.remove(waiting, "abort")
    assert not engine.remove(running, "abort")
    assert engine.pool.used == 0
    assert engine.finish_step(begun) == []
    assert engine.finished == {"abort": 2}


def test_a_sequence_that_was_never_added_can_be_ended() -> None:
    engine = scheduler()
    stranger = sequence(4, 4)
    assert not engine.remove(stranger, "abort")
    assert stranger.finished
    assert engine.finished == {}


def test_a_held_sequence_keeps_its_blocks_and_gets_no_further() -> None:
    engine = scheduler()
    held = sequence(8, 5)
    held.hold_at = 2
    engine.add(held)
    run(engine)
    assert (held.generated, held.finished, engine.pool.used) == (2, False, 3)
    held.hold_at = None
    run(engine)
    assert held.finished


def test_a_sequence_held_before_its_first_token_runs_but_says_nothing() -> None:
    engine = scheduler()
    held = sequence(1, 5)
    held.hold_at = 0
    engine.add(held)
    assert engine.begin_step() is None
    assert engine.running == [held]


def test_a_prompt_without_an_answer_ends_with_its_prefill() -> None:
    engine = scheduler()
    only = sequence(8, 0)
    engine.add(only)
    _, progressed = step(engine)
    assert progressed == [only]
    assert only.finished
    assert (only.generated, engine.generation_tokens, engine.prompt_tokens) == (0, 0, 8)


def test_what_can_never_fit_is_refused() -> None:
    engine = scheduler(blocks=2)
    with pytest.raises(ValueError, match="9 tokens do not fit into 2 blocks"):
        engine.add(sequence(4, 5))


def test_stored_blocks_are_told_with_parent_tokens_and_salt() -> None:
    engine = scheduler()
    engine.add(sequence(9, 1, salt="tenant"))
    run(engine)
    (first,) = engine.drain_events()
    assert isinstance(first, BlockStored)
    assert first.parent_block_hash is None
    assert first.token_ids == list(range(8))
    assert first.extra_keys == [("tenant",), None]

    engine.add(sequence(14, 1, salt="tenant"))
    run(engine)
    (second,) = engine.drain_events()
    assert isinstance(second, BlockStored)
    assert second.parent_block_hash == first.block_hashes[-1]
    assert second.token_ids == [8, 9, 10, 11]
    assert second.extra_keys is None


class SchedulerMachine(RuleBasedStateMachine):
    """Any mix of arrivals, steps and removals, in a cache so small that preemption and eviction are common."""

    sequences = Bundle("sequences")

    def __init__(self) -> None:
        super().__init__()
        self.engine = scheduler(blocks=10, max_sequences=3, max_batched_tokens=12)
        self.all: list[Sequence] = []
        self.indexed: set[int] = set()
        self.under_way: Step | None = None
        self.tokens_told = 0

    @rule(
        target=sequences,
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=25),
        output=st.integers(0, 15),
        hold_at=st.none() | st.integers(0, 3),
        salt=st.sampled_from(["", "tenant"]),
    )
    def arrive(self, prompt: list[int], output: int, hold_at: int | None, salt: str) -> Sequence:
        new = sequence(prompt, output, salt=salt)
        new.hold_at = hold_at
        self.all.append(new)
        self.engine.add(new)
        return new

    @rule()
    def begin(self) -> None:
        if self.under_way is None:
            self.under_way = self.engine.begin_step()
            if self.under_way is not None:
                counts = [count for _, count in self.under_way.scheduled]
                assert all(count > 0 for count in counts)
                assert sum(counts) <= 12
                assert self.under_way.prefill_tokens + self.under_way.decodes == sum(counts)

    @rule()
    def finish(self) -> None:
        if self.under_way is not None:
            before = {id(each): each.generated for each, _ in self.under_way.scheduled}
            progressed = self.engine.finish_step(self.under_way)
            self.tokens_told += sum(each.generated - before[id(each)] for each in progressed)
            self.under_way = None

    @rule(gone=consumes(sequences))
    def remove(self, gone: Sequence) -> None:
        was_finished = gone.finished
        assert self.engine.remove(gone, "abort") is not was_finished

    @rule(held=sequences)
    def release(self, held: Sequence) -> None:
        held.hold_at = None

    @invariant()
    def blocks_are_conserved(self) -> None:
        engine = self.engine
        engine.pool.invariants()
        assert len(engine.running) <= 3
        assert all(not each.blocks and not each.computed for each in engine.waiting)
        assert all(not each.blocks for each in self.all if each.finished)
        held = {block for each in engine.running for block in each.blocks}
        assert len(held) == engine.pool.used
        for each in engine.running:
            assert len(each.blocks) * BLOCK >= each.computed
            assert each.computed <= each.known

    @invariant()
    def events_describe_the_cache(self) -> None:
        for event in self.engine.drain_events():
            if isinstance(event, BlockStored):
                assert len(event.token_ids) == len(event.block_hashes) * BLOCK
                assert event.parent_block_hash is None or event.parent_block_hash not in event.block_hashes
                self.indexed.update(event.block_hashes)
            elif isinstance(event, BlockRemoved):
                self.indexed.difference_update(event.block_hashes)
            else:
                assert isinstance(event, BlocksCleared)
        assert self.indexed == self.engine.pool.remembered

    def teardown(self) -> None:
        self.finish()
        for each in self.all:
            each.hold_at = None
        run(self.engine)
        self.events_describe_the_cache()
        assert all(each.finished for each in self.all)
        assert self.engine.pool.used == 0
        assert sum(self.engine.finished.values()) == len(self.all)
        assert self.engine.generation_tokens == sum(each.generated for each in self.all)
        assert self.tokens_told <= self.engine.generation_tokens


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
