"""An engine of the LightLLM family (S-LoRA): prompts in steps of their own, and places reserved for whole answers.

A waiting turn is admitted when, by the lengths of the answers, the tokens in the cache would at no time exceed its size
(S-LoRA's `_can_add_new_req`); after an admission at least ten decode steps follow before the next one is tried.
"""

from heapq import heappop, heappush
from typing import Protocol

from pilothouse.simulator.step_times import EngineLimits, StepTimes
from pilothouse.simulator.token_gaps import TokenGaps
from pilothouse.simulator.turn import Turn

PATIENCE_STEPS = 10
"""Decode steps between two prefills, S-LoRA's `max_wait_tokens`."""


class Discipline(Protocol):
    """In what order waiting turns are admitted, and what of their service it hears."""

    def push(self, turn: Turn, now: int) -> bool:
        """A turn arrives. False refuses it."""
        ...

    def head(self) -> Turn | None:
        """Who is next."""
        ...

    def pop(self) -> Turn:
        """Admit that one."""
        ...

    def serve(self, turn: Turn, output_tokens: int) -> None:
        """A running turn has got so many more tokens."""
        ...

    def waiting(self) -> list[Turn]:
        """Everyone."""
        ...

    @property
    def fixed(self) -> bool:
        """Whether the order of those who wait never changes; then nothing needs to be tried between two ends."""
        ...


class ArrivalOrder:
    """First come, first served."""

    fixed = True

    def __init__(self) -> None:
        self._turns: dict[Turn, None] = {}

    def push(self, turn: Turn, now: int) -> bool:
        """At the end of the queue."""
        self._turns[turn] = None
        return True

    def head(self) -> Turn | None:
        """The oldest."""
        return next(iter(self._turns), None)

    def pop(self) -> Turn:
        """The oldest."""
        turn = next(iter(self._turns))
        del self._turns[turn]
        return turn

    def serve(self, turn: Turn, output_tokens: int) -> None:
        """It does not matter here."""

    def waiting(self) -> list[Turn]:
        """In the order of arrival."""
        return list(self._turns)


class SeparatePrefillEngine:
    """One replica. `limits.kv_blocks` are places for one token each, and `max_batch_tokens` bounds one prefill."""

    def __init__(
        self,
        times: StepTimes,
        limits: EngineLimits,
        discipline: Discipline | None = None,
        *,
        adapter_tokens: int = 0,
    ) -> None:
        """`adapter_tokens` are the places that one tenant's adapter takes while any of its turns runs."""
        self.times = times
        self.limits = limits
        self.gaps = TokenGaps()
        self.next_ns: int | None = None
        self.busy_ns = self.output_tokens = self.prefill_tokens = self.preemptions = 0
        self.slowness = 1.0
        self.stalled_until_ns = 0
        self._queue: Discipline = discipline or ArrivalOrder()
        self._running: dict[Turn, None] = {}
        self._ends: list[tuple[int, int, Turn]] = []
        self._adapter_tokens = adapter_tokens
        self._served: dict[Turn, int] = {}
        """The step until which a running turn's tokens were told to the discipline."""
        self._sequence = self._step = self._next_try = self._kv_tokens = 0
        self._steps = 0
        self._joins: list[Turn] = []
        self._refused: list[Turn] = []
        self._a = self._b = 0.0
        self._began_ns = 0

    def submit(self, turn: Turn, now: int) -> None:
        """A turn arrives; one that the discipline refuses ends at once, with the fault `rate_limited`.

        Raises:
            ValueError: it can never fit.
        """
        if turn.prompt + turn.output >= self.limits.kv_blocks:
            raise ValueError(f"turn {turn.key}: {turn.prompt} + {turn.output} tokens never fit into the KV cache")
        turn.queued_ns = now
        if not self._queue.push(turn, now):
            turn.fault = "rate_limited"
            self._refused.append(turn)
        if self.next_ns is None:
            self._began_ns = now
            self._plan()
            self._end_refused(now)
        elif self._steps > 1 and not self._joins:
            self._shorten(now)

    def advance(self) -> list[Turn]:
        """Be at `next_ns`: the turns that ended then."""
        now = self.next_ns
        assert now is not None
        ended, self._refused = self._refused, []
        self.busy_ns += now - self._began_ns
        self._began_ns = now
        if self._joins:
            self._join(now, ended)
        elif self._steps:
            decoding = len(self._running)
            self.gaps.note(self._a, self._b, self._steps, decoding)
            self._step += self._steps
            self._kv_tokens += decoding * self._steps
            self.output_tokens += decoding * self._steps
            while self._ends and self._ends[0][0] <= self._step:
                turn = heappop(self._ends)[2]
                turn.finished_ns = now
                turn.produced = turn.output
                self._kv_tokens -= turn.prompt + turn.output
                del self._running[turn]
                self._queue.serve(turn, self._step - self._served.pop(turn))
                ended.append(turn)
        self._plan()
        return ended

    def turns(self) -> list[Turn]:
        """Everything it has."""
        return [*self._running, *self._queue.waiting()]

    def crash(self) -> list[Turn]:
        """Lose everything that runs; who waits was not sent to it yet and waits on."""
        lost = list(self._running)
        self._running.clear()
        self._ends.clear()
        self._served.clear()
        self._joins = []
        self._kv_tokens = self._steps = 0
        self.next_ns = None
        for turn in lost:
            turn.restart()
        return lost

    def _plan(self) -> None:
        self._steps = 0
        if not self._running or self._step >= self._next_try:
            self._joins = self._admitted()
            if self._joins:
                tokens = sum(turn.prompt for turn in self._joins)
                pairs = sum(0.5 * turn.prompt * turn.prompt for turn in self._joins)
                self._a = self.times.mixed(tokens, len(self._joins), 0, pairs)
                self._b = 0.0
                self._set(1)
                return
        decoding = len(self._running)
        if not decoding:
            self.next_ns = None
            return
        self._a = self.times.decode[decoding] + self.times.kv * self._kv_tokens
        self._b = self.times.kv * decoding
        steps = self._ends[0][0] - self._step
        if self._queue.head() is not None:
            patience = self._next_try - self._step
            if patience > 0:
                steps = min(steps, patience)
            elif not self._queue.fixed:
                steps = 1
        self._set(steps)

    def _admitted(self) -> list[Turn]:
        """Those that fit, in the discipline's order, up to one prefill's tokens."""
        queue = self._queue
        if queue.head() is None:
            return []
        if not queue.fixed:
            for turn in self._running:
                queue.serve(turn, self._step - self._served[turn])
                self._served[turn] = self._step
        # (tokens that the answer still needs, tokens it holds)
        held = [(end - self._step, turn.prompt + turn.output - (end - self._step)) for end, _, turn in self._ends]
        adapters = {turn.tenant for turn in self._running}
        joins: list[Turn] = []
        tokens = 0
        while (waiting := queue.head()) is not None and len(held) < self.limits.max_sequences:
            if tokens + waiting.prompt > self.limits.max_batch_tokens and joins:
                break
            held.append((waiting.output - 1, waiting.prompt + 1))
            adapters.add(waiting.tenant)
            if _peak(held) >= self.limits.kv_blocks - self._adapter_tokens * len(adapters):
                break
            admitted = queue.pop()
            admitted.scheduled_ns = self._began_ns
            tokens += admitted.prompt
            joins.append(admitted)
        return joins

    def _join(self, now: int, ended: list[Turn]) -> None:
        for turn in self._joins:
            turn.first_ns = now
            turn.produced = 1
            self.prefill_tokens += turn.prompt
            self.output_tokens += 1
            self._queue.serve(turn, 1)
            if turn.output == 1:
                turn.finished_ns = now
                ended.append(turn)
                continue
            self._running[turn] = None
            self._served[turn] = self._step
            self._kv_tokens += turn.prompt + 1
            self._sequence += 1
            heappush(self._ends, (self._step + turn.output - 1, self._sequence, turn))
        self._joins = []
        self._next_try = self._step + PATIENCE_STEPS

    def _set(self, steps: int) -> None:
        self._a *= self.slowness
        self._b *= self.slowness
        self._steps = steps
        self._began_ns = max(self._began_ns, self.stalled_until_ns)
        self.next_ns = self._began_ns + round(steps * self._a + self._b * (steps * (steps - 1) // 2))

    def _end_refused(self, now: int) -> None:
        """An idle engine has nothing else to do at once."""
        if self.next_ns is None and self._refused:
            self.next_ns = now

    def _shorten(self, now: int) -> None:
        """End the jump where what arrived may be tried: at the first step after it, and not before patience ends."""
        passed = now - self._began_ns
        least = max(self._next_try - self._step, 1)
        low, high = min(least, self._steps), self._steps
        while low < high:
            middle = (low + high) // 2
            if round(middle * self._a + self._b * (middle * (middle - 1) // 2)) >= passed:
                high = middle
            else:
                low = middle + 1
        self._steps = low
        self.next_ns = self._began_ns + round(low * self._a + self._b * (low * (low - 1) // 2))


def _peak(held: list[tuple[int, int]]) -> int:
    """The most tokens that the answers will ever hold at once: each grows until it ends, the longest ones last."""
    most = total = 0
    for count, (left, has) in enumerate(sorted(held, reverse=True), start=1):
        total += has
        most = max(most, left * count + total)
    return most
