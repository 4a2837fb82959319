"""Minimising without derivatives."""

from collections.abc import Callable, Sequence


def nelder_mead(
    cost: Callable[[Sequence[float]], float], start: Sequence[float], *, step: float = 0.15, evaluations: int = 200
) -> list[float]:
    """The best point found from `start` (Nelder and Mead, 1965), its simplex begun with relative steps."""
    points = [list(start)]
    for index, value in enumerate(start):
        moved = list(start)
        moved[index] = value * (1.0 + step) if value else step
        points.append(moved)
    simplex = sorted((cost(point), point) for point in points)
    used = len(simplex)
    while used < evaluations:
        worst_cost, worst = simplex[-1]
        centre = [sum(point[i] for _, point in simplex[:-1]) / (len(simplex) - 1) for i in range(len(start))]
        point = _between(centre, worst, -1.0)
        found = cost(point)
        used += 1
        if found < simplex[0][0]:
            further = _between(centre, worst, -2.0)
            further_cost = cost(further)
            used += 1
            simplex[-1] = min((found, point), (further_cost, further))
        elif found < simplex[-2][0]:
            simplex[-1] = (found, point)
        else:
            nearer = _between(centre, worst, 0.5 if found >= worst_cost else -0.5)
            nearer_cost = cost(nearer)
            used += 1
            if nearer_cost < min(found, worst_cost):
                simplex[-1] = (nearer_cost, nearer)
            else:
                best = simplex[0][1]
                shrunk = [_between(best, other, 0.5) for _, other in simplex[1:]]
                simplex = [simplex[0], *((cost(each), each) for each in shrunk)]
                used += len(shrunk)
        simplex.sort()
    return simplex[0][1]


def _between(centre: Sequence[float], other: Sequence[float], ratio: float) -> list[float]:
    return [c + ratio * (o - c) for c, o in zip(centre, other, strict=True)]
