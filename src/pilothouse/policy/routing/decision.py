"""A choice of a replica with everything that led to it; words are made when somebody looks."""

import enum
from collections.abc import Sequence

import msgspec

from pilothouse.policy.affinity.moves import MovePrice


class Rule(enum.StrEnum):
    """What decided."""

    ONLY_CANDIDATE = "only-candidate"
    SESSION_HOME = "session-home"
    SESSION_MOVED = "session-moved"
    SCORE = "score"
    NO_CANDIDATE = "no-candidate"


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate as it was seen. Lengths and loads are in tokens; of scores the lowest is taken."""

    replica: str
    load: int
    cached: int
    score: float


class RouteReason(msgspec.Struct, frozen=True, kw_only=True):
    """The decision in full, for the admin API, the journal and `pilothouse explain`."""

    request: str
    policy: str
    rule: Rule
    replica: str | None
    prompt_tokens: int
    blocks: int
    candidates: tuple[Scored, ...]
    left_out: tuple[str, ...] = ()
    price: MovePrice | None = None


class RouteDecision:
    """Where a request goes. `index` is the replica's place in the router's list, `None` if there is none to go to.

    It keeps references to what was looked at (the lists are its own) and builds `reason()` only when asked.
    """

    __slots__ = (
        "_candidates", "_left_out", "_loads", "_matched", "_policy", "_scores",
        "blocks", "index", "price", "replica", "request", "rule", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        *,
        request: str,
        policy: str,
        rule: Rule,
        index: int | None,
        tokens: int,
        blocks: Sequence[int],
        candidates: Sequence[str],
        loads: Sequence[int],
        matched: Sequence[int],
        scores: Sequence[float],
        replica: str | None,
        left_out: Sequence[str] = (),
        price: MovePrice | None = None,
    ) -> None:
        self.request = request
        self.rule = rule
        self.index = index
        self.replica = replica
        self.tokens = tokens
        self.blocks = blocks
        self.price = price
        self._policy = policy
        self._candidates = candidates
        self._loads = loads
        self._matched = matched
        self._scores = scores
        self._left_out = left_out

    def reason(self) -> RouteReason:
        """The whole decision as a value."""
        return RouteReason(
            request=self.request,
            policy=self._policy,
            rule=self.rule,
            replica=self.replica,
            prompt_tokens=self.tokens,
            blocks=len(self.blocks),
            candidates=tuple(
                Scored(replica=replica, load=load, cached=cached, score=score)
                for replica, load, cached, score in zip(
                    self._candidates, self._loads, self._matched, self._scores, strict=True
                )
            ),
            left_out=tuple(self._left_out),
            price=self.price,
        )
