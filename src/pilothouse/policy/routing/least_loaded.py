"""Which replica serves a request: the one with the fewest tokens in flight, counted until end of sequence."""

from collections.abc import Collection, Sequence

from pilothouse.policy.draw import Draws


def least_loaded(loads: Sequence[int], request: str, draws: Draws, *, excluded: Collection[int] = ()) -> int | None:
    """The index of the least loaded candidate, ties at random; `None` if there is none left.

    `loads[i]` are the tokens in flight on candidate i; `request` is the id that the chance is drawn from. `excluded`
    are candidates not to be taken: those that this request has failed on, or that refuse connections just now.
    """
    if excluded:
        candidates = [index for index in range(len(loads)) if index not in excluded]
        if not candidates:
            return None
        least = min([loads[index] for index in candidates])
        tied = [index for index in candidates if loads[index] == least]
    else:
        if not loads:
            return None
        # List methods alone: 64 candidates cost 1 us, and 4 us with a comprehension.
        least = min(loads)
        if loads.count(least) == 1:
            return loads.index(least)
        tied = [index for index, load in enumerate(loads) if load == least]
    return tied[0] if len(tied) == 1 else tied[draws.below(len(tied), request, "replica")]
