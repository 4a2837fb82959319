"""A continuously batching engine in virtual time: chunked prefill, paged KV, preemption by recompute, fast-forward.

The order within a step is that of vLLM's scheduler: running sequences first, one token each; then the prompt that was
begun; then waiting ones while the token budget, the number of sequences and the KV blocks allow.

Between two events the batch is constant, and a step takes `a + b*i` for the i-th of them: every decoding sequence's
context grows by one token a step, and a long prompt's by one chunk. So k steps take `k*a + b*k*(k-1)/2`, and the engine
jumps to the step where something happens: a sequence ends, KV blocks run out, a prompt is done, or, if it could be
admitted at once, a turn arrives.
"""

import math
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Protocol

from pilothouse.simulator.kv_pool import KvPool
from pilothouse.simulator.step_times import EngineLimits, StepTimes
from pilothouse.simulator.token_gaps import TokenGaps
from pilothouse.simulator.turn import NEVER, Turn

_FAR = 1 << 60


class WaitQueue(Protocol):
    """Turns that wait inside an engine, best first; a deque is first come, first served."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Turn: ...
    def __iter__(self) -> Iterator[Turn]: ...
    def append(self, turn: Turn, /) -> None:
        """Begin to wait."""
        ...

    def appendleft(self, turn: Turn, /) -> None:
        """Wait again, before all others."""
        ...

    def popleft(self) -> Turn:
        """Take the best."""
        ...

    def clear(self) -> None:
        """Forget them all."""
        ...


class Engine:
    """One replica's engine. `next_ns` is when `advance` has to be called next; `None` when it is idle."""

    __slots__ = (
        "_a",
        "_b",
        "_began_ns",
        "_budget",
        "_chunk",
        "_decoding",
        "_ends",
        "_first_growth",
        "_joins",
        "_kv_tokens",
        "_open",
        "_partial",
        "_phases",
        "_sequence",
        "_step",
        "_stepped",
        "_steps",
        "busy_ns",
        "gaps",
        "limits",
        "next_ns",
        "output_tokens",
        "pool",
        "preemptions",
        "prefill_tokens",
        "running",
        "slowness",
        "stalled_until_ns",
        "times",
        "waiting",
    )

    def __init__(
        self,
        times: StepTimes,
        limits: EngineLimits,
        *,
        unit_tokens: int | None = None,
        waiting: WaitQueue | None = None,
        stepped: bool = False,
    ) -> None:
        """`stepped` takes every step by itself, to check the jumps by."""
        self.times = times
        self.limits = limits
        self.pool = KvPool(
            limits.kv_blocks, limits.block_tokens, unit_tokens or limits.block_tokens, caching=limits.prefix_caching
        )
        self.waiting: WaitQueue = deque() if waiting is None else waiting
        self.running: dict[Turn, None] = {}
        """In the order of admission: the last one is preempted first."""
        self.gaps = TokenGaps()
        self.slowness = 1.0
        self.stalled_until_ns = 0
        self.next_ns: int | None = None
        self.busy_ns = self.output_tokens = self.prefill_tokens = self.preemptions = 0
        self._stepped = stepped
        self._budget = limits.max_batch_tokens
        self._step = 0
        """Decode steps so far: the clock by which ends and block boundaries of sequences are known in advance."""
        self._decoding = 0
        self._kv_tokens = 0
        """Context of all decoding sequences in the next step."""
        self._phases = [0] * limits.block_tokens
        """Decoding sequences by (tokens - step) modulo the block size, which stays the same while they decode."""
        self._ends: list[tuple[int, int, Turn]] = []
        self._sequence = 0
        self._partial: Turn | None = None
        self._joins: list[Turn] = []
        self._chunk = 0
        self._steps = 0
        self._a = self._b = 0.0
        self._began_ns = 0
        self._first_growth = 0
        self._open = False

    @property
    def step(self) -> int:
        """Decode steps taken."""
        return self._step

    def submit(self, turn: Turn, now: int) -> None:
        """A turn arrives.

        Raises:
            ValueError: it can never fit into this engine's KV memory.
        """
        block = self.limits.block_tokens
        if -(-(turn.prompt + turn.output - 1) // block) > self.limits.kv_blocks:
            raise ValueError(f"turn {turn.key}: {turn.prompt} + {turn.output} tokens never fit into the KV cache")
        turn.queued_ns = now
        self.waiting.append(turn)
        if self.next_ns is None:
            self._began_ns = max(now, self.stalled_until_ns)
            self._plan()
        elif self._open and self._steps > 1:
            self._shorten(now)

    def advance(self) -> list[Turn]:
        """Be at `next_ns`: the turns that ended then."""
        now = self.next_ns
        if now is None:
            raise ValueError("an idle engine has nothing to advance to")
        steps, decoding = self._steps, self._decoding
        self.busy_ns += now - self._began_ns
        self._began_ns = now
        if decoding:
            self.gaps.note(self._a, self._b, steps, decoding)
            if steps > 1:
                self.pool.grow(self._growth(steps) - self._first_growth)
            self._step += steps
            self._kv_tokens += decoding * steps
            self.output_tokens += decoding * steps
        if self._chunk:
            partial = self._partial
            assert partial is not None
            partial.computed += self._chunk * steps
            self.prefill_tokens += self._chunk * steps
        ended: list[Turn] = []
        if self._joins:
            self._join(now, ended)
        ends, step = self._ends, self._step
        while ends and ends[0][0] <= step:
            at, _, turn = heappop(ends)
            if turn.finish_step == at:
                self._end(turn, now)
                ended.append(turn)
        self._plan()
        return ended

    def turns(self) -> list[Turn]:
        """Everything it has, running ones first."""
        return [*self.running, *self.waiting]

    def crash(self) -> list[Turn]:
        """Lose everything. The turns it had, which keep what they produced only as a matter of record."""
        lost = self.turns()
        self.pool = KvPool(
            self.limits.kv_blocks, self.limits.block_tokens, self.pool.unit_tokens, caching=self.limits.prefix_caching
        )
        self.waiting.clear()
        self.running.clear()
        self._ends.clear()
        self._joins = []
        self._partial = None
        self._phases = [0] * self.limits.block_tokens
        self._decoding = self._kv_tokens = self._chunk = self._steps = 0
        self.next_ns = None
        self._open = False
        for turn in lost:
            turn.restart()
        return lost

    def _join(self, now: int, ended: list[Turn]) -> None:
        """Prompts that are done: their first token is there, and they decode from the next step on."""
        block, step = self.limits.block_tokens, self._step
        for turn in self._joins:
            length = turn.prompt + turn.produced
            self.prefill_tokens += length - turn.computed
            turn.computed = length
            turn.produced += 1
            self.output_tokens += 1
            if turn.first_ns == NEVER:
                turn.first_ns = now
            left = turn.output - turn.produced
            if left == 0:
                del self.running[turn]
                self.pool.release(turn, length)
                turn.finished_ns = now
                ended.append(turn)
                continue
            turn.phase = (length - step) % block
            turn.finish_step = step + left
            self._phases[turn.phase] += 1
            self._decoding += 1
            self._kv_tokens += length + 1
            self._sequence += 1
            heappush(self._ends, (turn.finish_step, self._sequence, turn))
        self._joins = []

    def _end(self, turn: Turn, now: int) -> None:
        """A decoding sequence has its last token."""
        turn.produced = turn.output
        turn.finished_ns = now
        del self.running[turn]
        self._leave(turn)

    def _leave(self, turn: Turn) -> None:
        """Take a sequence out of the decoding ones, and its blocks back. `produced` is up to date."""
        tokens = turn.prompt + turn.produced
        self._kv_tokens -= tokens
        self._decoding -= 1
        self._phases[turn.phase] -= 1
        turn.finish_step = NEVER
        # The last token has no place in the cache yet: it gets one in the step that reads it.
        turn.own_blocks += -(-(tokens - 1) // self.limits.block_tokens) - self._admitted_blocks(turn)
        self.pool.release(turn, tokens - 1)

    def _admitted_blocks(self, turn: Turn) -> int:
        return turn.own_blocks + len(turn.shared) * self.pool.unit_blocks

    def _preempt(self) -> None:
        """Put the youngest sequence back to the front of the queue; it computes again what is not cached by then."""
        turn = next(reversed(self.running))
        del self.running[turn]
        if turn is self._partial:
            self._partial = None
            self.pool.release(turn, turn.computed)
        else:
            turn.produced = turn.output - (turn.finish_step - self._step)
            self._leave(turn)
        turn.computed = 0
        turn.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(turn)

    def _growth(self, steps: int) -> int:
        """Blocks that the decoding sequences take in the next `steps` steps."""
        block = self.limits.block_tokens
        cycles, rest = divmod(steps, block)
        phases, step = self._phases, self._step
        return cycles * self._decoding + sum([phases[-(step + index) % block] for index in range(rest)])

    def _steps_until_full(self, steps: int) -> int:
        """As many of `steps` as the free blocks allow; the first has its blocks already."""
        free = self.pool.free + self._first_growth
        block, decoding = self.limits.block_tokens, self._decoding
        if free >= decoding * (steps // block + 1):
            return steps
        allowed = free // decoding * block
        free %= decoding
        phases, step = self._phases, self._step
        while allowed < steps and (need := phases[-(step + allowed) % block]) <= free:
            free -= need
            allowed += 1
        return min(allowed, steps)

    def _plan(self) -> None:
        """Decide the next step, and how many like it follow."""
        pool = self.pool
        decoding = self._decoding
        self._chunk = 0
        preempted = False
        if decoding:
            growth = self._phases[-self._step % self.limits.block_tokens]
            while growth > pool.free:
                self._preempt()
                preempted = True
                growth = self._phases[-self._step % self.limits.block_tokens]
            decoding = self._decoding
            self._first_growth = growth
            if growth:
                pool.grow(growth)
        budget = self._budget - decoding
        partial = self._partial
        tokens = sequences = 0
        pairs = 0.0
        if partial is not None:
            done = partial.computed
            left = partial.prompt + partial.produced - done
            if left > budget:
                self._plan_chunks(partial, budget, left)
                return
            self._joins.append(partial)
            self._partial = None
            tokens = left
            pairs = left * (done + 0.5 * left)
            budget -= left
        waiting, running = self.waiting, self.running
        if waiting and not preempted:
            most = self.limits.max_sequences
            while budget > 0 and waiting and len(running) < most:
                turn = waiting[0]
                length = turn.prompt + turn.produced
                if not pool.admit(turn, length):
                    break
                waiting.popleft()
                running[turn] = None
                if turn.scheduled_ns == NEVER:
                    turn.scheduled_ns = self._began_ns
                    turn.cached_tokens = turn.computed
                done = turn.computed
                left = length - done
                if left > budget:
                    left = self._chunk = budget
                    self._partial = turn
                    sequences = 1
                else:
                    self._joins.append(turn)
                tokens += left
                pairs += left * (done + 0.5 * left)
                budget -= left
        if tokens:
            sequences += decoding + len(self._joins)
            self._a = self.times.mixed(decoding + tokens, sequences, self._kv_tokens, pairs)
            self._b = 0.0
            self._set(1, may_shorten=False)
        elif decoding:
            times = self.times
            self._a = times.decode[decoding] + times.kv * self._kv_tokens
            self._b = times.kv * decoding
            ends = self._ends
            while ends[0][2].finish_step != ends[0][0]:
                heappop(ends)
            steps = ends[0][0] - self._step
            if steps > 1:
                steps = 1 if self._stepped else self._steps_until_full(steps)
            # A turn that arrives while others wait, or that finds every place taken, changes nothing.
            self._set(steps, may_shorten=not waiting and len(running) < self.limits.max_sequences)
        else:
            self.next_ns = None

    def _plan_chunks(self, partial: Turn, chunk: int, left: int) -> None:
        """Full chunks of one long prompt, all but its last: nothing can be admitted beside them."""
        times, decoding = self.times, self._decoding
        self._chunk = chunk
        pairs = chunk * (partial.computed + 0.5 * chunk)
        self._a = times.mixed(self._budget, decoding + 1, self._kv_tokens, pairs)
        self._b = times.kv_mixed * decoding + times.pair * chunk * chunk
        steps = (left - 1) // chunk
        if decoding and steps > 1:
            ends = self._ends
            while ends[0][2].finish_step != ends[0][0]:
                heappop(ends)
            steps = self._steps_until_full(min(steps, ends[0][0] - self._step))
        self._set(1 if self._stepped else steps, may_shorten=False)

    def _set(self, steps: int, *, may_shorten: bool) -> None:
        if self.slowness != 1.0:
            self._a *= self.slowness
            self._b *= self.slowness
        self._steps = steps
        self._open = may_shorten
        self._began_ns = max(self._began_ns, self.stalled_until_ns)
        self.next_ns = self._began_ns + round(steps * self._a + self._b * (steps * (steps - 1) // 2))

    def _shorten(self, now: int) -> None:
        """End the jump at the first step boundary at or after `now`, so that what arrived can be admitted there."""
        passed = now - self._began_ns
        a, b = self._a, self._b
        # The positive root of b/2*k^2 + (a - b/2)*k = passed, in the form that does not cancel for a small b.
        half = a - 0.5 * b
        steps = max(1, math.ceil(2.0 * passed / (half + math.sqrt(half * half + 2.0 * b * passed))))
        while steps > 1 and round((steps - 1) * a + b * ((steps - 1) * (steps - 2) // 2)) >= passed:
            steps -= 1
        while round(steps * a + b * (steps * (steps - 1) // 2)) < passed:
            steps += 1
        if steps < self._steps:
            self._steps = steps
            self.next_ns = self._began_ns + round(steps * a + b * (steps * (steps - 1) // 2))
        self._open = False
