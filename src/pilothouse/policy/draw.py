"""Chance that can be repeated: derived from a seed and a request id, never from a generator with a state."""

import hashlib


class Draw:
    """The chance of one request. The same seed, request and purpose give the same draw, live, simulated or replayed."""

    __slots__ = ("_request", "_seed")

    def __init__(self, seed: int, request: str) -> None:
        self._seed = seed
        self._request = request

    def below(self, bound: int, purpose: str) -> int:
        """An integer in [0, bound), uniform up to a bias of bound / 2**64. Purposes are independent of each other."""
        text = f"{self._seed}:{self._request}:{purpose}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % bound
