"""Chance that can be repeated: derived from a seed and a request id, never from a generator with a state."""

import hashlib


class Draws:
    """The chance of a fleet. The same seed, request and purpose give the same draw, live, simulated or replayed."""

    __slots__ = ("_seed",)

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def below(self, bound: int, request: str, purpose: str) -> int:
        """An integer in [0, bound), uniform up to a bias of bound / 2**64. Purposes are independent of each other."""
        text = f"{self._seed}:{request}:{purpose}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % bound
