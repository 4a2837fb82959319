"""A hosted engine: somebody else's, of which only its pace and its limits are known."""

from heapq import heappop, heappush

import msgspec

from pilothouse.model.units import SECOND
from pilothouse.simulator.token_gaps import TokenGaps
from pilothouse.simulator.turn import Turn

_WINDOW_NS = 60 * SECOND


class HostedSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider promises, or was seen to do."""

    ttft_s: float
    tokens_per_s: float
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    prefill_tokens_per_s: float | None = None


class HostedEngine:
    """Answers every turn at one pace, and refuses what is over the limits of a fixed minute with `rate_limited`."""

    def __init__(self, spec: HostedSpec) -> None:
        self.spec = spec
        self.gaps = TokenGaps()
        self.busy_ns = self.output_tokens = self.prefill_tokens = self.preemptions = 0
        self._ends: list[tuple[int, int, Turn]] = []
        self._sequence = 0
        self._window = -1
        self._requests = self._tokens = 0

    @property
    def next_ns(self) -> int | None:
        """When the next answer ends."""
        return self._ends[0][0] if self._ends else None

    def submit(self, turn: Turn, now: int) -> None:
        """A turn arrives. It is refused by setting its `fault`, and then ends at once."""
        spec = self.spec
        turn.queued_ns = now
        window = now // _WINDOW_NS
        if window != self._window:
            self._window, self._requests, self._tokens = window, 0, 0
        tokens = turn.prompt + turn.output
        over = spec.requests_per_minute is not None and self._requests >= spec.requests_per_minute
        over = over or (spec.tokens_per_minute is not None and self._tokens + tokens > spec.tokens_per_minute)
        if over:
            turn.fault = "rate_limited"
            self._put(now, turn)
            return
        self._requests += 1
        self._tokens += tokens
        prefill_s = turn.prompt / spec.prefill_tokens_per_s if spec.prefill_tokens_per_s else 0.0
        gap = SECOND / spec.tokens_per_s
        turn.scheduled_ns = now
        turn.first_ns = now + round((spec.ttft_s + prefill_s) * SECOND)
        self.prefill_tokens += turn.prompt
        self.output_tokens += turn.output
        if turn.output > 1:
            self.gaps.note(gap, 0.0, turn.output - 1, 1)
        self._put(turn.first_ns + round(gap * (turn.output - 1)), turn)

    def advance(self) -> list[Turn]:
        """The turn that ends at `next_ns`."""
        at, _, turn = heappop(self._ends)
        if not turn.fault:
            turn.produced = turn.output
            turn.finished_ns = at
        return [turn]

    def turns(self) -> list[Turn]:
        """Everything it has."""
        return [turn for *_, turn in self._ends]

    def crash(self) -> list[Turn]:
        """Lose everything."""
        lost = self.turns()
        self._ends.clear()
        return lost

    def _put(self, at: int, turn: Turn) -> None:
        self._sequence += 1
        heappush(self._ends, (at, self._sequence, turn))
