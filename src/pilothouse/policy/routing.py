"""Which replica serves a request: the one with the fewest tokens in flight, counted until end of sequence."""

import enum
from collections.abc import Collection, Sequence

import msgspec

from pilothouse.policy.draw import Draws


class Rule(enum.StrEnum):
    """What decided."""

    ONLY_CANDIDATE = "only_candidate"
    LEAST_LOADED = "least_loaded"
    RANDOM_TIE = "random_tie"


class RouteDecision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A choice and its reason. `index` points into the candidates that were offered, `load` is in tokens."""

    index: int
    load: int
    candidates: int
    rule: Rule


def choose(loads: Sequence[int], request: str, draws: Draws, *, excluded: Collection[int] = ()) -> RouteDecision | None:
    """The least loaded candidate, ties at random; `None` if there is none left.

    `loads[i]` are the tokens in flight on candidate i; `request` is the id that the chance is drawn from. `excluded`
    are candidates not to be taken: those that this request has failed on, or that refuse connections just now.
    """
    if excluded:
        candidates = [index for index in range(len(loads)) if index not in excluded]
        if not candidates:
            return None
        least = min([loads[index] for index in candidates])
        tied = [index for index in candidates if loads[index] == least]
        count = len(candidates)
    else:
        count = len(loads)
        if count == 0:
            return None
        # List methods alone: 64 candidates cost 1 us, and 4 us with a comprehension.
        least = min(loads)
        first = loads.index(least)
        tied = [first] if loads.count(least) == 1 else [index for index, load in enumerate(loads) if load == least]
    if len(tied) == 1:
        rule = Rule.ONLY_CANDIDATE if count == 1 else Rule.LEAST_LOADED
        return RouteDecision(index=tied[0], load=least, candidates=count, rule=rule)
    index = tied[draws.below(len(tied), request, "replica")]
    return RouteDecision(index=index, load=least, candidates=count, rule=Rule.RANDOM_TIE)
