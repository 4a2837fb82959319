"""Chance that is the same on any machine: a small generator and the distributions that workloads need.

Only operations that IEEE 754 defines to the last bit are used: the logarithm of a C library is not the same everywhere.
"""

import zlib
from math import frexp, sqrt

_LN2 = 0.6931471805599453
_MASK = (1 << 64) - 1


def ln(x: float) -> float:
    """The natural logarithm of a positive number, by the series of the inverse hyperbolic tangent."""
    mantissa, exponent = frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa *= 2.0
        exponent -= 1
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    square = ratio * ratio
    total = 0.0
    for odd in range(27, 0, -2):
        total = total * square + 1.0 / odd
    return exponent * _LN2 + 2.0 * ratio * total


def exp(x: float) -> float:
    """e to the power of x, by halving the argument and squaring the series."""
    halvings = 0
    while abs(x) > 0.03125:
        x *= 0.5
        halvings += 1
    total = 1.0
    for n in range(12, 0, -1):
        total = 1.0 + total * x / n
    for _ in range(halvings):
        total *= total
    return total


class Chance:
    """A stream of chance (SplitMix64, Steele et al. 2014), named by a seed and a purpose."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, purpose: str) -> None:
        self._state = (seed * 0x9E3779B97F4A7C15 + zlib.crc32(purpose.encode()) * 0xD1342543DE82EF95) & _MASK

    def bits(self) -> int:
        """64 uniform bits."""
        self._state = state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return state ^ (state >> 31)

    def uniform(self) -> float:
        """In [0, 1)."""
        return (self.bits() >> 11) * 2.0**-53

    def below(self, bound: int) -> int:
        """An integer in [0, bound)."""
        return (self.bits() * bound) >> 64

    def exponential(self, mean: float) -> float:
        """Exponentially distributed."""
        return -mean * ln(1.0 - self.uniform())

    def normal(self) -> float:
        """Standard normal, by Marsaglia's polar method."""
        while True:
            u, v = 2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0
            square = u * u + v * v
            if 0.0 < square < 1.0:
                return u * sqrt(-2.0 * ln(square) / square)

    def gamma(self, shape: float, mean: float) -> float:
        """Gamma distributed with that mean, by Marsaglia and Tsang (2000)."""
        if shape < 1.0:
            lift = exp(ln(1.0 - self.uniform()) / shape)
            return self.gamma(shape + 1.0, (shape + 1.0)) * lift * mean / shape
        d = shape - 1.0 / 3.0
        c = 1.0 / sqrt(9.0 * d)
        while True:
            x = self.normal()
            cube_root = 1.0 + c * x
            v = cube_root * cube_root * cube_root
            if v > 0.0 and ln(1.0 - self.uniform()) < 0.5 * x * x + d - d * v + d * ln(v):
                return d * v * mean / shape

    def lognormal(self, median: float, sigma: float) -> float:
        """Lognormally distributed; sigma is that of the logarithm."""
        return median * exp(sigma * self.normal())
