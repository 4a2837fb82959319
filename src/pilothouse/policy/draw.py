"""Chance that can be repeated: derived from a seed and a request id, never from a generator with a state."""

import zlib

_GOLDEN = 0x9E3779B1
"""2**32 over the golden ratio, odd: multiplying by it spreads a CRC's bits upwards (Knuth, volume 3, 6.4)."""


class Draws:
    """The chance of a fleet. The same seed, request and purpose give the same draw, live, simulated or replayed."""

    __slots__ = ("_begun", "_seed")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._begun: dict[str, int] = {}

    def below(self, bound: int, request: str, purpose: str) -> int:
        """An integer in [0, bound), uniform up to a bias of bound / 2**32.

        CRC-32 is enough for ids that nobody chooses to defeat it, and a third of the cost of a cryptographic hash. It
        is linear: two purposes' CRCs of an id differ by the same bits for every id. The multiplication ends that.
        """
        begun = self._begun.get(purpose)
        if begun is None:
            begun = self._begun[purpose] = zlib.crc32(f"{self._seed}:{purpose}:".encode())
        return ((zlib.crc32(request.encode(), begun) * _GOLDEN & 0xFFFFFFFF) * bound) >> 32
