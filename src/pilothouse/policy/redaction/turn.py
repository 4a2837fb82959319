"""What the filters of one turn share: the numbers of placeholders, the key of digests, and the counts."""

import hashlib
import hmac

from pilothouse.model.filters import Action

KEPT_CHARS = 4
"""What `mask` leaves readable, as on receipts of cards."""
_LONG_MASK = "*" * 8
"""For values that were not kept whole."""
DIGEST_CHARS = 16
"""64 bits of the digest: enough to tell values apart."""
MAX_NUMBERED = 10_000
"""Values of a turn that get numbers of their own; those beyond share one."""


class Turn:
    """One turn. Its request and all streams of its answer use the same.

    Attributes:
        counts: Matches by (entity, action).
    """

    __slots__ = ("_key", "_numbers", "_used", "counts")

    def __init__(self, hash_key: str | None = None) -> None:
        self._key = (hash_key or "").encode()
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._used: dict[str, int] = {}
        self.counts: dict[tuple[str, Action], int] = {}

    def count(self, entity: str, action: Action) -> None:
        """One more."""
        key = (entity, action)
        self.counts[key] = self.counts.get(key, 0) + 1

    def digest(self) -> "hmac.HMAC":
        """An empty digest under the turn's key; values that are swallowed are added as they pass."""
        return hmac.new(self._key, digestmod=hashlib.sha256)

    def replacement(self, entity: str, action: Action, digest: "hmac.HMAC", value: str | None) -> str:
        """What is sent instead of a value. `value` is `None` where only the digest was kept."""
        if action is Action.MASK:
            return _masked(value) if value is not None else _LONG_MASK
        name = entity.upper().replace("-", "_").replace("/", "_")
        if action is Action.HASH:
            return f"[{name}:{digest.hexdigest()[:DIGEST_CHARS]}]"
        return f"[{name}_{self._number(name, digest.digest())}]"

    def _number(self, name: str, digest: bytes) -> int:
        known = self._numbers.get((name, digest))
        if known is not None:
            return known
        number = self._used.get(name, 0) + 1
        if len(self._numbers) < MAX_NUMBERED:
            self._numbers[name, digest] = number
            self._used[name] = number
        return number


def _masked(value: str) -> str:
    """Stars for letters and digits but the last four; no more than half of a short value is left."""
    meaningful = sum(map(str.isalnum, value))
    hidden = meaningful - min(KEPT_CHARS, meaningful // 2)
    masked = ""
    for character in value:
        if character.isalnum() and hidden:
            hidden -= 1
            character = "*"
        masked += character
    return masked
