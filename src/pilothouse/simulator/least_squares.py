"""Linear least squares for a handful of coefficients, without a numeric library."""

from collections.abc import Sequence


def fit_relative(rows: Sequence[Sequence[float]], targets: Sequence[float]) -> list[float]:
    """Coefficients c that minimise the sum over rows of ((row . c - target) / target)^2.

    Raises:
        ValueError: the rows do not determine them.
    """
    return fit_weighted(rows, targets, [1.0 / (target * target) for target in targets])


def fit_weighted(rows: Sequence[Sequence[float]], targets: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Coefficients c that minimise the sum over rows of weight * (row . c - target)^2.

    Raises:
        ValueError: the rows do not determine them.
    """
    width = len(rows[0])
    normal = [[0.0] * (width + 1) for _ in range(width)]
    for row, target, weight in zip(rows, targets, weights, strict=True):
        for i in range(width):
            for j in range(width):
                normal[i][j] += weight * row[i] * row[j]
            normal[i][width] += weight * row[i] * target
    return _solve(normal)


def fit_relative_nonnegative(rows: Sequence[Sequence[float]], targets: Sequence[float]) -> list[float]:
    """As `fit_relative`, with coefficients that would be negative left out one after the other: 0 for them."""
    kept = list(range(len(rows[0])))
    while True:
        found = fit_relative([[row[column] for column in kept] for row in rows], targets)
        least = min(range(len(found)), key=found.__getitem__)
        if found[least] >= 0 or len(kept) == 1:
            result = [0.0] * len(rows[0])
            for column, value in zip(kept, found, strict=True):
                result[column] = max(value, 0.0)
            return result
        del kept[least]


def relative_errors(predicted: Sequence[float], measured: Sequence[float]) -> tuple[float, float]:
    """The mean and the largest of |predicted - measured| / measured."""
    errors = [abs(p - m) / m for p, m in zip(predicted, measured, strict=True)]
    return sum(errors) / len(errors), max(errors)


def _solve(matrix: list[list[float]]) -> list[float]:
    """Gaussian elimination with partial pivoting of an augmented matrix, after scaling its columns to one diagonal."""
    size = len(matrix)
    scale = [matrix[i][i] ** 0.5 or 1.0 for i in range(size)]
    for i in range(size):
        for j in range(size):
            matrix[i][j] /= scale[i] * scale[j]
        matrix[i][size] /= scale[i]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(matrix[row][column]))
        if abs(matrix[pivot][column]) < 1e-12:
            raise ValueError("the measurements do not determine the coefficients")
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        for row in range(column + 1, size):
            factor = matrix[row][column] / matrix[column][column]
            for j in range(column, size + 1):
                matrix[row][j] -= factor * matrix[column][j]
    found = [0.0] * size
    for row in reversed(range(size)):
        rest = sum(matrix[row][j] * found[j] for j in range(row + 1, size))
        found[row] = (matrix[row][size] - rest) / matrix[row][row]
    return [value / scale[i] for i, value in enumerate(found)]
