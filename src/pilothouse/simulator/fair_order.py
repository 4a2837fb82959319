"""Fair counters in the order of an engine's own queue, as VTC ran them: the seam to `policy/fairness`."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from pilothouse.simulator.turn import Turn


class Counters(Protocol):
    """What is needed of `policy.fairness`'s `FairCounters`."""

    def join(self, client: str, weight: float = 1.0) -> None:
        """A turn of the client begins to wait."""
        ...

    def leave(self, client: str) -> None:
        """It waits no more."""
        ...

    def charge(self, client: str, input_tokens: float, output_tokens: float) -> None:
        """It was served so much."""
        ...

    def choose(self, allowed: Callable[[str], bool]) -> str | None:
        """Who is next."""
        ...


class FairOrder:
    """A discipline of `SeparatePrefillEngine`: the tenant that the counters choose, its oldest turn first."""

    fixed = False

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._turns: dict[str, deque[Turn]] = {}
        self._waiting = 0

    def push(self, turn: Turn, now: int) -> bool:
        """It begins to wait."""
        self._turns.setdefault(turn.tenant, deque()).append(turn)
        self._counters.join(turn.tenant)
        self._waiting += 1
        return True

    def head(self) -> Turn | None:
        """The oldest turn of the tenant whose turn it is."""
        if not self._waiting:
            return None
        tenant = self._counters.choose(lambda _: True)
        return None if tenant is None else self._turns[tenant][0]

    def pop(self) -> Turn:
        """Admit it, and charge its prompt."""
        turn = self.head()
        assert turn is not None
        self._turns[turn.tenant].popleft()
        self._waiting -= 1
        self._counters.leave(turn.tenant)
        self._counters.charge(turn.tenant, turn.prompt, 0)
        return turn

    def serve(self, turn: Turn, output_tokens: int) -> None:
        """Charge tokens as they come."""
        if output_tokens:
            self._counters.charge(turn.tenant, 0, output_tokens)

    def waiting(self) -> list[Turn]:
        """Everyone, by tenant."""
        return [turn for turns in self._turns.values() for turn in turns]
