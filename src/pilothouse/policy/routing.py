"""Which replica serves a request: the one with the fewest tokens in flight, counted until end of sequence."""

import enum
from collections.abc import Collection, Sequence

import msgspec

from pilothouse.policy.draw import Draw


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


def choose(loads: Sequence[int], draw: Draw, *, excluded: Collection[int] = ()) -> RouteDecision | None:
    """The least loaded candidate, ties at random; `None` if there is none left.

    `loads[i]` are the tokens in flight on candidate i. `excluded` are candidates not to be taken: those that this
    request has failed on, or that refuse connections just now.
    """
    candidates = [index for index in range(len(loads)) if index not in excluded] if excluded else range(len(loads))
    count = len(candidates)
    if count == 0:
        return None
    if count == 1:
        index = candidates[0]
        return RouteDecision(index=index, load=loads[index], candidates=1, rule=Rule.ONLY_CANDIDATE)
    least = min(loads[index] for index in candidates) if excluded else min(loads)
    if not excluded and loads.count(least) == 1:
        # The usual case under load, with list methods alone: 64 candidates cost 1 us instead of 4.
        return RouteDecision(index=loads.index(least), load=least, candidates=count, rule=Rule.LEAST_LOADED)
    tied = [index for index in candidates if loads[index] == least]
    if len(tied) == 1:
        return RouteDecision(index=tied[0], load=least, candidates=count, rule=Rule.LEAST_LOADED)
    index = tied[draw.below(len(tied), "replica")]
    return RouteDecision(index=index, load=least, candidates=count, rule=Rule.RANDOM_TIE)
