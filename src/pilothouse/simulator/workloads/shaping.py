"""Operations on workloads: another rate, a part of the time, several at once."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush, merge

from pilothouse.simulator.chance import Chance
from pilothouse.simulator.turn import Turn

_STRIDE = 1 << 40
"""Between the prefix units of two copies of a trace."""


def faster(turns: Iterable[Turn], factor: float) -> Iterator[Turn]:
    """The same turns, `factor` times as close together: what a trace's requests do to a fleet in less time."""
    for turn in turns:
        turn.arrival_ns = round(turn.arrival_ns / factor)
        yield turn


def multiplied(turns: Sequence[Turn], copies: int, *, seed: int = 0, jitter_ns: int = 3_000_000_000) -> Iterator[Turn]:
    """Every turn `copies` times within its own `jitter_ns`: as many times the users, each with prefixes of its own.

    What all requests share (the first unit, if it is the same in all) stays shared.
    """
    chance = Chance(seed, "copies")
    everywhere = _shared_by_all(turns)
    pending: list[tuple[int, str, Turn]] = []
    for turn in turns:
        # All copies of turns from before this one's earliest instant are known.
        while pending and pending[0][0] <= turn.arrival_ns:
            yield heappop(pending)[2]
        for copy in range(copies):
            made = _copied(turn, copy, chance.below(jitter_ns), everywhere)
            heappush(pending, (made.arrival_ns, made.key, made))
    while pending:
        yield heappop(pending)[2]


def between(turns: Iterable[Turn], start_ns: int, end_ns: int) -> Iterator[Turn]:
    """Those that arrive in [start, end), from 0."""
    for turn in turns:
        if start_ns <= turn.arrival_ns < end_ns:
            turn.arrival_ns -= start_ns
            yield turn


def mixed(*workloads: Iterable[Turn]) -> Iterator[Turn]:
    """Several at once."""
    return merge(*workloads, key=lambda turn: turn.arrival_ns)


def thinned(turns: Iterable[Turn], ratio: float, *, seed: int = 0) -> Iterator[Turn]:
    """A random share of them."""
    chance = Chance(seed, "thinned")
    return (turn for turn in turns if chance.uniform() < ratio)


def _shared_by_all(turns: Sequence[Turn]) -> frozenset[int]:
    found = {turn.units[0] for turn in turns if turn.units}
    return frozenset(found) if len(found) == 1 else frozenset()


def _copied(turn: Turn, copy: int, later: int, everywhere: frozenset[int]) -> Turn:
    base = copy * _STRIDE
    units = tuple([unit if unit in everywhere else base + unit for unit in turn.units]) if copy else turn.units
    return Turn(
        f"{turn.key}+{copy}",
        turn.arrival_ns + later,
        turn.prompt,
        turn.output,
        tenant=turn.tenant,
        session=turn.session,
        units=units,
    )
