"""Chance that can be repeated: derived from a seed and a request id, never from a generator with a state."""

import zlib


class Draws:
    """The chance of a fleet. The same seed, request and purpose give the same draw, live, simulated or replayed."""

    __slots__ = ("_seed",)

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def below(self, bound: int, request: str, purpose: str) -> int:
        """An integer in [0, bound), uniform up to a bias of bound / 2**32.

        CRC-32 is enough for ids that nobody chooses to defeat it, and a third of the cost of a cryptographic hash.
        """
        return zlib.crc32(f"{self._seed}:{request}:{purpose}".encode()) % bound
