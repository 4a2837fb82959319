"""Continuous batching with paged KV, step by step and without a clock.

The rules are those of vLLM's scheduler (vllm/v1/core/sched/scheduler.py, 0.33): running sequences first and in order,
then waiting ones first come first served while the token budget, the sequence limit and the blocks allow; when blocks
run out, the sequence that came last is preempted and later computed again. Pure: the caller lets the time of a step
pass between `begin_step` and `finish_step`.
"""

from array import array
from collections import Counter, deque
from hashlib import blake2b
from typing import Protocol

import msgspec

from pilothouse.testing.fake_engine.blocks import BlockPool
from pilothouse.testing.fake_engine.cache_events import BlockStored, CacheEvent
from pilothouse.testing.fake_engine.tokens import BYTES_PER_TOKEN

_HASH_BYTES = 8


class SequenceListener(Protocol):
    """Who wants to hear of a sequence's progress."""

    def tokens_ready(self, sequence: "Sequence") -> None:
        """`generated` has grown, or `finished` has become true."""


class Sequence:
    """One prompt and the answer it will get.

    `output` is decided beforehand, so that a block's content is known before it is computed. `computed` counts tokens
    whose KV is in blocks, `generated` the tokens of the answer so far. With `hold_at`, the sequence keeps its place
    and its blocks but gets no further than that many tokens. `arrived_at` and `last_token_at` are for the caller.
    """

    __slots__ = (
        "_hashes",
        "arrived_at",
        "blocks",
        "cached_tokens",
        "computed",
        "finish_reason",
        "finished",
        "generated",
        "hold_at",
        "last_token_at",
        "listener",
        "output_tokens",
        "preemptions",
        "prompt_tokens",
        "remembered",
        "salt",
        "tokens",
    )

    def __init__(
        self,
        prompt: "array[int]",
        output: "array[int]",
        *,
        listener: SequenceListener | None = None,
        finish_reason: str = "length",
        hold_at: int | None = None,
        salt: str = "",
    ) -> None:
        self.tokens = prompt + output
        self.prompt_tokens = len(prompt)
        self.output_tokens = len(output)
        self.listener = listener
        self.finish_reason = finish_reason
        self.hold_at = hold_at
        self.salt = salt
        self.computed = 0
        self.generated = 0
        self.cached_tokens: int | None = None  # known once admitted
        self.preemptions = 0
        self.finished = False
        self.blocks: list[int] = []
        self.remembered = 0  # how many of the blocks were offered to the prefix cache
        self.arrived_at = 0.0
        self.last_token_at = 0.0
        self._hashes: list[int] = []

    @property
    def known(self) -> int:
        """Tokens that exist: the prompt and what was generated."""
        return self.prompt_tokens + self.generated

    @property
    def computable(self) -> int:
        """Tokens a step may compute now. Held back: all but the one whose computation gives the next token."""
        held = self.hold_at is not None and self.generated >= self.hold_at
        return self.known - self.computed - held

    def block_hash(self, index: int, block_size: int) -> int:
        """The hash of block `index`'s content and of all before it; the salt enters with the first."""
        width = block_size * BYTES_PER_TOKEN
        data = memoryview(self.tokens).cast("B")
        while len(self._hashes) <= index:
            position = len(self._hashes)
            parent = self._hashes[-1].to_bytes(_HASH_BYTES, "big") if position else self.salt.encode()
            digest = blake2b(parent, digest_size=_HASH_BYTES)
            digest.update(data[position * width : (position + 1) * width])
            self._hashes.append(int.from_bytes(digest.digest(), "big"))
        return self._hashes[index]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine computes in one go: tokens by sequence, and how they divide into prefill and decode."""

    scheduled: tuple[tuple[Sequence, int], ...]
    prefill_tokens: int
    decodes: int


class SchedulerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity. `max_batched_tokens` bounds the tokens of a step, `max_sequences` those that run at once."""

    blocks: int
    block_size: int = 16
    max_sequences: int = 256
    max_batched_tokens: int = 8192
    prefix_caching: bool = True


class Scheduler:
    """Sequences in, steps out. A sequence must fit by itself: prompt and output within all blocks."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.blocks)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()

    def add(self, sequence: Sequence) -> None:
        """A new sequence joins the queue. Raises ValueError when it could never run."""
        if self._blocks_for(len(sequence.tokens)) > self.limits.blocks:
            raise ValueError(f"{len(sequence.tokens)} tokens do not fit into {self.limits.blocks} blocks")
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence, reason: str) -> bool:
        """End a sequence early and free its blocks at once. False when it has ended already, or was never added."""
        if sequence.finished:
            return False
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        else:
            sequence.finished = True
            return False
        self._end(sequence, reason)
        return True

    def begin_step(self) -> Step | None:
        """Choose what is computed next and give it blocks. None when nothing can be."""
        preemptions = self.preemptions
        scheduled = self._continue_running()
        if self.preemptions == preemptions:
            self._admit_waiting(scheduled)
        if not scheduled:
            return None
        decodes = sum(1 for sequence, count in scheduled if count == 1 and sequence.generated)
        total = sum(count for _, count in scheduled)
        return Step(scheduled=tuple(scheduled), prefill_tokens=total - decodes, decodes=decodes)

    def finish_step(self, step: Step) -> list[Sequence]:
        """The time of the step is over: who got a token, or ended. Sequences removed meanwhile are passed over."""
        progressed: list[Sequence] = []
        for sequence, count in step.scheduled:
            if sequence.finished:
                continue
            sequence.computed += count
            self._remember(sequence)
            if sequence.computed == sequence.known:
                self._sample(sequence)
                progressed.append(sequence)
        ended = [sequence for sequence in progressed if sequence.generated >= sequence.output_tokens]
        for sequence in ended:
            self._end(sequence, sequence.finish_reason)
        if ended:
            self.running = [sequence for sequence in self.running if not sequence.finished]
        return progressed

    def clear_cache(self) -> None:
        """Forget all content that can be hit."""
        self.pool.forget_all()

    def drain_events(self) -> list[CacheEvent]:
        """Cache events since the last call, in the order in which they happened."""
        return self.pool.drain_events()

    def _continue_running(self) -> list[tuple[Sequence, int]]:
        scheduled: list[tuple[Sequence, int]] = []
        budget = self.limits.max_batched_tokens
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            count = min(sequence.computable, budget)
            if count > 0:
                if not self._make_room(sequence, count):
                    break
                scheduled.append((sequence, count))
                budget -= count
            index += 1
        return scheduled

    def _admit_waiting(self, scheduled: list[tuple[Sequence, int]]) -> None:
        budget = self.limits.max_batched_tokens - sum(count for _, count in scheduled)
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_sequences:
            sequence = self.waiting[0]
            hits = self._prefix_hits(sequence)
            # A free block that is hit leaves the free list too.
            wanted = self._blocks_for(sequence.known) - len(hits) + sum(map(self.pool.is_free, hits))
            if wanted > self.pool.free:
                return
            self.waiting.popleft()
            self.running.append(sequence)
            self._adopt_prefix(sequence, hits)
            count = max(0, min(sequence.computable, budget))
            if count:
                self._make_room(sequence, count)
                scheduled.append((sequence, count))
                budget -= count

    def _prefix_hits(self, sequence: Sequence) -> list[int]:
        hits: list[int] = []
        if self.limits.prefix_caching:
            # The last token is always computed: its result is the next token.
            for index in range((sequence.known - 1) // self.limits.block_size):
                block = self.pool.find(sequence.block_hash(index, self.limits.block_size))
                if block is None:
                    break
                hits.append(block)
        return hits

    def _adopt_prefix(self, sequence: Sequence, hits: list[int]) -> None:
        for block in hits:
            self.pool.hold(block)
        sequence.blocks = hits
        sequence.remembered = len(hits)
        sequence.computed = len(hits) * self.limits.block_size
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.computed
            if self.limits.prefix_caching:
                self.prefix_queries += sequence.prompt_tokens
                self.prefix_hits += sequence.computed

    def _make_room(self, sequence: Sequence, count: int) -> bool:
        """Blocks for `count` more tokens, at the cost of those that came later. False: it had to give way itself."""
        wanted = self._blocks_for(sequence.computed + count) - len(sequence.blocks)
        while wanted > self.pool.free:
            victim = self.running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        sequence.blocks.extend(self.pool.take(wanted))
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._free(sequence)
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(sequence)

    def _sample(self, sequence: Sequence) -> None:
        if sequence.generated == 0:
            self.prompt_tokens += sequence.prompt_tokens
        if sequence.output_tokens:
            sequence.generated += 1
            self.generation_tokens += 1

    def _remember(self, sequence: Sequence) -> None:
        """Offer the blocks that have become full to the prefix cache, and tell of those that it took."""
        if not self.limits.prefix_caching:
            return
        size = self.limits.block_size
        full = sequence.computed // size
        run: list[int] = []
        for index in range(sequence.remembered, full):
            if self.pool.remember(sequence.blocks[index], sequence.block_hash(index, size)):
                run.append(index)
            elif run:
                self._tell_stored(sequence, run)
                run = []
        if run:
            self._tell_stored(sequence, run)
        sequence.remembered = full

    def _tell_stored(self, sequence: Sequence, run: list[int]) -> None:
        size = self.limits.block_size
        first, end = run[0], run[-1] + 1
        salted = first == 0 and sequence.salt
        self.pool.events.append(
            BlockStored(
                block_hashes=[sequence.block_hash(index, size) for index in run],
                parent_block_hash=sequence.block_hash(first - 1, size) if first else None,
                token_ids=sequence.tokens[first * size : end * size].tolist(),
                block_size=size,
                lora_id=None,
                medium="GPU",
                lora_name=None,
                extra_keys=[(sequence.salt,), *[None] * (len(run) - 1)] if salted else None,
            )
        )

    def _end(self, sequence: Sequence, reason: str) -> None:
        sequence.finished = True
        self._free(sequence)
        self.finished[reason] += 1

    def _free(self, sequence: Sequence) -> None:
        self.pool.give_back(sequence.blocks)
        sequence.blocks = []
        sequence.computed = sequence.remembered = 0

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)
