"""The seam for routing: what a fleet asks, and the production policies behind it."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from pilothouse.policy.draw import Draws
from pilothouse.policy.routing import least_loaded
from pilothouse.simulator.turn import Turn


class Router(Protocol):
    """Chooses replicas, by their indices in the fleet, and hears what becomes of its choices."""

    def choose(self, turn: Turn, now: int, excluded: Collection[int]) -> int | None:
        """The replica for `turn`; `None` if there is none. `excluded` cannot be taken."""
        ...

    def started(self, turn: Turn, index: int, now: int) -> None:
        """`turn` was sent to the replica."""
        ...

    def first_token(self, turn: Turn, index: int, now: int) -> None:
        """Its first token came back. Called when `hears_first_tokens`."""
        ...

    def ended(self, turn: Turn, index: int, now: int) -> None:
        """It is over, whichever way."""
        ...

    @property
    def hears_first_tokens(self) -> bool:
        """Whether `first_token` does anything; a fleet that need not say it is faster."""
        ...


class LeastLoaded:
    """`policy.routing.least_loaded`, as a gateway runs it: tokens in flight until end of sequence.

    With `stale_ns` it sees the loads as they were at the last multiple of that time, as one of many gateways that tell
    each other now and then does.
    """

    hears_first_tokens = False

    def __init__(self, replicas: int, draws: Draws, *, stale_ns: int = 0) -> None:
        self._loads = [0] * replicas
        self._seen: Sequence[int] = self._loads
        self._draws = draws
        self._stale_ns = stale_ns
        self._refresh_at = 0

    def choose(self, turn: Turn, now: int, excluded: Collection[int]) -> int | None:
        """The replica with the fewest tokens in flight."""
        if self._stale_ns and now >= self._refresh_at:
            self._seen = tuple(self._loads)
            self._refresh_at = now - now % self._stale_ns + self._stale_ns
        return least_loaded(self._seen, turn.key, self._draws, excluded=excluded)

    def started(self, turn: Turn, index: int, now: int) -> None:
        """Count its tokens. The output is counted as it turns out, since a client's bound is not in a trace."""
        self._loads[index] += turn.prompt + turn.output

    def first_token(self, turn: Turn, index: int, now: int) -> None:
        """Nothing: load counts until end of sequence."""

    def ended(self, turn: Turn, index: int, now: int) -> None:
        """Count them no longer."""
        self._loads[index] -= turn.prompt + turn.output


class RouteDecision(Protocol):
    """What is needed of a router's decision."""

    @property
    def index(self) -> int | None:
        """The replica, if there is one."""
        ...


class PrefixRouter(Protocol):
    """What is needed of `policy.routing.replica_router.ReplicaRouter`."""

    def set_replicas(self, replicas: Sequence[str]) -> None:
        """These are the replicas now."""
        ...

    def choose(
        self,
        request: str,
        tokens: int,
        loads: Sequence[int],
        blocks: Sequence[int] = (),
        *,
        excluded: Collection[int] = (),
    ) -> Any:
        """A `RouteDecision` for a prompt with these block hashes."""
        ...

    def sent(self, decision: Any) -> None:
        """The request went where it was decided."""
        ...


class ByPrefix:
    """The production router that weighs prefix against load, with a trace's prefix units as the blocks of prompts."""

    hears_first_tokens = False

    def __init__(self, router: PrefixRouter, replicas: int) -> None:
        """`router` has to be told the tokens of a unit when it is made (its `tokens_in`)."""
        router.set_replicas([str(index) for index in range(replicas)])
        self._router = router
        self._loads = [0] * replicas
        self._decided: RouteDecision | None = None

    def choose(self, turn: Turn, now: int, excluded: Collection[int]) -> int | None:
        """The replica that the production router decides on."""
        decision: RouteDecision = self._router.choose(turn.key, turn.prompt, self._loads, turn.units, excluded=excluded)
        self._decided = decision
        return decision.index

    def started(self, turn: Turn, index: int, now: int) -> None:
        """Remember where its prefix will be."""
        self._router.sent(self._decided)
        self._loads[index] += turn.prompt + turn.output

    def first_token(self, turn: Turn, index: int, now: int) -> None:
        """Nothing: load counts until end of sequence."""

    def ended(self, turn: Turn, index: int, now: int) -> None:
        """Count it no longer."""
        self._loads[index] -= turn.prompt + turn.output
