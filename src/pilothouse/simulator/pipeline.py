"""An engine whose layers are cut into pipeline stages: micro-batches follow each other through them.

As many micro-batches as there are stages are on their way at once; a sequence is in one of them at a time. A
micro-batch enters the first stage when that is free, and leaves the last one after its own time in every stage, the
hand-overs between them, and the waiting for slower ones ahead of it: the bubbles.
"""

from collections import deque
from heapq import heappop, heappush

from pilothouse.model.units import MILLISECOND
from pilothouse.simulator.kv_pool import KvPool
from pilothouse.simulator.links import handover_ms
from pilothouse.simulator.profile import Profile
from pilothouse.simulator.step_times import EngineLimits
from pilothouse.simulator.token_gaps import TokenGaps
from pilothouse.simulator.turn import NEVER, Turn


class _MicroBatch:
    """What entered the first stage together."""

    __slots__ = ("chunks", "decoding")

    def __init__(self, decoding: list[Turn], chunks: list[tuple[Turn, int]]) -> None:
        self.decoding = decoding
        self.chunks = chunks


class PipelineEngine:
    """One replica of several stages. It takes every step, since its batches change with every micro-batch."""

    def __init__(self, profile: Profile, limits: EngineLimits, *, stages: int, unit_tokens: int | None = None) -> None:
        self.limits = limits
        self.times = profile.times(limits)
        self.stages = stages
        self.pool = KvPool(
            limits.kv_blocks, limits.block_tokens, unit_tokens or limits.block_tokens, caching=limits.prefix_caching
        )
        self.gaps = TokenGaps()
        self.busy_ns = self.output_tokens = self.prefill_tokens = self.preemptions = 0
        self.slowness = 1.0
        self.stalled_until_ns = 0
        self._handover = [
            round(handover_ms(tokens, profile.hidden) * MILLISECOND) for tokens in range(limits.max_batch_tokens + 1)
        ]
        self._waiting: deque[Turn] = deque()
        self._running: dict[Turn, None] = {}
        self._ready: dict[Turn, None] = {}
        """Running and in no micro-batch."""
        self._last_token: dict[Turn, int] = {}
        self._stage_free = [0] * stages
        self._events: list[tuple[int, int, _MicroBatch | None]] = []
        """Ends of micro-batches; `None`: the first stage is free."""
        self._sequence = 0
        self._under_way = 0
        self._now = 0

    @property
    def next_ns(self) -> int | None:
        """When something happens next."""
        return self._events[0][0] if self._events else None

    def submit(self, turn: Turn, now: int) -> None:
        """A turn arrives.

        Raises:
            ValueError: it can never fit into the KV memory.
        """
        if -(-(turn.prompt + turn.output - 1) // self.limits.block_tokens) > self.limits.kv_blocks:
            raise ValueError(f"turn {turn.key}: {turn.prompt} + {turn.output} tokens never fit into the KV cache")
        turn.queued_ns = now
        self._waiting.append(turn)
        self._now = now
        self._issue()

    def advance(self) -> list[Turn]:
        """Be at `next_ns`: the turns that ended then."""
        at, _, batch = heappop(self._events)
        self._now = at
        ended: list[Turn] = []
        if batch is not None:
            self._under_way -= 1
            self._complete(batch, at, ended)
        self._issue()
        return ended

    def turns(self) -> list[Turn]:
        """Everything it has."""
        return [*self._running, *self._waiting]

    def crash(self) -> list[Turn]:
        """Lose everything."""
        lost = self.turns()
        for turn in self._running:
            self.pool.release(turn, 0)
            turn.restart()
        self._waiting.clear()
        self._running.clear()
        self._ready.clear()
        self._last_token.clear()
        self._events.clear()
        self._under_way = 0
        return lost

    def _complete(self, batch: _MicroBatch, at: int, ended: list[Turn]) -> None:
        for turn, chunk in batch.chunks:
            turn.computed += chunk
            self.prefill_tokens += chunk
            if turn.computed < turn.prompt + turn.produced:
                self._ready[turn] = None
            else:
                self._token(turn, at, ended)
        for turn in batch.decoding:
            last = self._last_token.get(turn)
            if last is not None:  # one that was preempted has paused for another reason
                self.gaps.note(float(at - last), 0.0, 1, 1)
            turn.computed += 1
            self._token(turn, at, ended)

    def _token(self, turn: Turn, at: int, ended: list[Turn]) -> None:
        turn.produced += 1
        self.output_tokens += 1
        self._last_token[turn] = at
        if turn.first_ns == NEVER:
            turn.first_ns = at
        if turn.produced < turn.output:
            self._ready[turn] = None
            return
        turn.finished_ns = at
        del self._running[turn], self._last_token[turn]
        self.pool.release(turn, turn.computed)
        ended.append(turn)

    def _issue(self) -> None:
        """Send one micro-batch into the first stage if that is free and a place in the pipeline is."""
        start = max(self._now, self.stalled_until_ns)
        if self._under_way >= self.stages:
            return
        if self._stage_free[0] > self._now:
            return
        batch = self._compose()
        if batch is None:
            return
        tokens = len(batch.decoding) + sum(chunk for _, chunk in batch.chunks)
        took = self._step_ns(batch, tokens) * self.slowness / self.stages
        stage_ns = max(round(took), 1)
        at = start
        for stage in range(self.stages):
            at = max(at, self._stage_free[stage]) + stage_ns
            self._stage_free[stage] = at
            self.busy_ns += stage_ns
            if stage + 1 < self.stages:
                at += self._handover[tokens]
        self._under_way += 1
        self._sequence += 1
        heappush(self._events, (at, self._sequence, batch))
        if self.stages > 1:
            self._sequence += 1
            heappush(self._events, (self._stage_free[0], self._sequence, None))

    def _step_ns(self, batch: _MicroBatch, tokens: int) -> float:
        kv_tokens = sum(turn.prompt + turn.produced for turn in batch.decoding)
        if not batch.chunks:
            return self.times.decode_ns(len(batch.decoding), kv_tokens)
        pairs = sum(chunk * (turn.computed + 0.5 * chunk) for turn, chunk in batch.chunks)
        return self.times.mixed(tokens, len(batch.decoding) + len(batch.chunks), kv_tokens, pairs)

    def _compose(self) -> _MicroBatch | None:
        budget = self.limits.max_batch_tokens
        share = max(-(-len(self._running) // self.stages), 1)
        decoding: list[Turn] = []
        chunks: list[tuple[Turn, int]] = []
        for turn in list(self._ready):
            if turn not in self._ready:
                continue  # preempted for another one of this batch
            left = turn.prompt + turn.produced - turn.computed
            if left == 1 and turn.produced:
                if len(decoding) < share and budget > 0 and self._grow(turn):
                    decoding.append(turn)
                    del self._ready[turn]
                    budget -= 1
            elif budget > 0:
                chunk = min(left, budget)
                chunks.append((turn, chunk))
                del self._ready[turn]
                budget -= chunk
        while budget > 0 and self._waiting and len(self._running) < self.limits.max_sequences:
            turn = self._waiting[0]
            if not self.pool.admit(turn, turn.prompt + turn.produced):
                break
            self._waiting.popleft()
            self._running[turn] = None
            if turn.scheduled_ns == NEVER:
                turn.scheduled_ns = self._now
                turn.cached_tokens = turn.computed
            chunk = min(turn.prompt + turn.produced - turn.computed, budget)
            chunks.append((turn, chunk))
            budget -= chunk
        return _MicroBatch(decoding, chunks) if decoding or chunks else None

    def _grow(self, turn: Turn) -> bool:
        """The block that the next token needs, if it begins one; younger turns that stand ready make room."""
        if turn.computed % self.limits.block_tokens:
            return True
        while self.pool.free < 1:
            victim = next((each for each in reversed(self._running) if each in self._ready), None)
            if victim is None or victim is turn:
                return False
            del self._running[victim], self._ready[victim]
            self._last_token.pop(victim, None)
            self.pool.release(victim, victim.computed)
            victim.computed = 0
            victim.preemptions += 1
            self.preemptions += 1
            self._waiting.appendleft(victim)
        self.pool.grow(1)
        turn.own_blocks += 1
        return True
