"""The public keys of one issuer, and when they are to be fetched again.

They are fetched every few minutes, and early when a token names a key that is not among them: an issuer may sign with
a new key before it was seen. Anybody can make up names of keys, so that this happens at most once in `COOLDOWN_S`
whatever comes, and not again for a name that a fetch has just shown not to exist.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from pilothouse.policy.tokens.identity import TokenFault

REFRESH_S = 300.0
"""How often the keys are fetched anyway: a key that an issuer withdraws is good for at most so long."""
FILE_REFRESH_S = 5.0
"""The same of keys in a file, which cost nobody else anything."""
RETRY_S = 10.0
"""After a fetch that failed."""
COOLDOWN_S = 30.0
"""Between two fetches for the sake of a name that is not known."""
MISSING_S = 300.0
"""How long a name that a fetch did not find is not asked for again."""
MAX_MISSING = 1024
"""Names that are remembered for it: more than that, and the cooldown alone holds."""
MAX_AGE_S = 86_400.0
"""Keys of a day ago are not trusted any more, if the issuer could not be reached since."""


class PublicKey(Protocol):
    """A key that signatures are checked with."""

    @property
    def key_id(self) -> str | None:
        """Its name in the issuer's set."""

    @property
    def algorithms(self) -> frozenset[str]:
        """The algorithms it can be used with."""

    @property
    def thumbprint(self) -> str:
        """What tells it from other keys (RFC 7638)."""

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Whether this is its signature. `algorithm` is one of its own."""


class KeyRing:
    """The keys of one issuer. `refresh_s` is how often they are fetched; `on_wanted` is called when it is due early."""

    def __init__(self, refresh_s: float = REFRESH_S) -> None:
        self._refresh_s = refresh_s
        self._keys: Mapping[str | None, PublicKey] = {}
        self._fetched_s: float | None = None
        self._tried_s: float | None = None
        self._wanted = True
        self._asked: OrderedDict[str, None] = OrderedDict()
        self._missing: OrderedDict[str, float] = OrderedDict()
        self.on_wanted: Callable[[], None] = lambda: None

    def due_in(self, now_s: float) -> float:
        """In how many seconds the keys are to be fetched; 0 for now."""
        if self._tried_s is None or self._wanted:
            return 0.0
        is_good = self._fetched_s == self._tried_s
        return max(0.0, self._tried_s + (self._refresh_s if is_good else min(RETRY_S, self._refresh_s)) - now_s)

    def install(self, keys: Iterable[PublicKey], now_s: float) -> bool:
        """The issuer's keys are these. True if one that was there is gone: what it has signed is void."""
        fresh: dict[str | None, PublicKey] = {}
        unnamed = []
        for key in keys:
            if key.key_id is None:
                unnamed.append(key)
            else:
                fresh[key.key_id] = key
        everything = [*fresh.values(), *unnamed]
        if len(everything) == 1:
            fresh[None] = everything[0]  # a token need not name the only key there is
        prints = {key.thumbprint for key in everything}
        is_gone = any(key.thumbprint not in prints for key in self._keys.values())
        self._keys = fresh
        self._fetched_s = self._tried_s = now_s
        self._wanted = False
        for name in self._asked:
            if name not in fresh:
                self._missing[name] = now_s
                self._missing.move_to_end(name)
        self._asked.clear()
        while len(self._missing) > MAX_MISSING:
            self._missing.popitem(last=False)
        return is_gone

    def failed(self, now_s: float) -> None:
        """The keys could not be fetched. What is there is used on."""
        self._tried_s = now_s
        self._wanted = False
        self._asked.clear()

    def find(self, key_id: str | None, algorithm: str, now_s: float) -> PublicKey | TokenFault:
        """The key that a token names."""
        if self._fetched_s is None or now_s - self._fetched_s > MAX_AGE_S:
            return TokenFault.KEYS_UNAVAILABLE
        key = self._keys.get(key_id)
        if key is not None:
            return key if algorithm in key.algorithms else TokenFault.ALGORITHM
        if key_id is None or self._missing.get(key_id, -MISSING_S) > now_s - MISSING_S:
            return TokenFault.KEY
        if not self._wanted:
            if self._tried_s is not None and now_s - self._tried_s < COOLDOWN_S:
                return TokenFault.KEY if self._fetched_s == self._tried_s else TokenFault.KEYS_UNAVAILABLE
            self._wanted = True
            self.on_wanted()
        if len(self._asked) < MAX_MISSING:
            self._asked[key_id] = None
        return TokenFault.KEYS_UNAVAILABLE
