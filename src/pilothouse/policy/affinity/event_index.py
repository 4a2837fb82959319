"""The precise index: what each replica's engine says that it stored and removed.

Engines emit hashes of their own, whose algorithm and seed are theirs. They are kept as names only; blocks of different
replicas are recognised by what the events say they hold: the chain of token ids and of extra keys (a tenant's salt, an
adapter, an image).
"""

import enum
import hashlib
from array import array
from collections.abc import Sequence

ON_DEVICE = frozenset({None, "GPU"})
"""Media that count. A block in host memory or on disk has to be loaded first, and is not followed."""

Name = int | bytes


class EventIndex:
    """Which slot (a replica) holds which blocks of tokens. Bounded by the engines' own caches."""

    __slots__ = ("_contents", "_holders", "orphans")

    def __init__(self, slots: int) -> None:
        self._contents: list[dict[Name, int]] = [{} for _ in range(slots)]
        self._holders: dict[int, int] = {}
        self.orphans = 0
        """Blocks stored behind a parent that was never heard of: they cannot be placed, and wait for a replay."""

    def __len__(self) -> int:
        """Different blocks known."""
        return len(self._holders)

    def stored(
        self,
        slot: int,
        hashes: Sequence[Name],
        parent: Name | None,
        token_ids: Sequence[int],
        block_size: int,
        *,
        keys: Sequence[str] = (),
        medium: str | None = None,
    ) -> None:
        """The replica stored these blocks, one after the other behind `parent`."""
        if medium not in ON_DEVICE:
            return
        contents = self._contents[slot]
        content = 0
        if parent is not None:
            known = contents.get(parent)
            if known is None:
                self.orphans += len(hashes)
                return
            content = known
        for number, name in enumerate(hashes):
            tokens = token_ids[number * block_size : (number + 1) * block_size]
            content = _next(content, tokens, keys[number] if number < len(keys) else "")
            old = contents.get(name)
            if old is not None and old != content:
                self._drop(slot, old)
            contents[name] = content
            self._holders[content] = self._holders.get(content, 0) | 1 << slot

    def removed(self, slot: int, hashes: Sequence[Name], *, medium: str | None = None) -> None:
        """The replica forgot these blocks; those that are not known are passed over."""
        if medium not in ON_DEVICE:
            return
        for name in hashes:
            content = self._contents[slot].pop(name, None)
            if content is not None:
                self._drop(slot, content)

    def cleared(self, slot: int) -> None:
        """The replica forgot everything: it said so, it was restarted, it is gone, or events were lost for good."""
        for content in self._contents[slot].values():
            self._drop(slot, content)
        self._contents[slot] = {}

    def matched(self, token_ids: Sequence[int], block_size: int, keys: Sequence[str] = ()) -> list[int]:
        """For each slot how many leading tokens of a prompt it holds, in whole blocks."""
        held = [0] * len(self._contents)
        alive = (1 << len(held)) - 1
        content = 0
        for number in range(len(token_ids) // block_size):
            start = number * block_size
            content = _next(content, token_ids[start : start + block_size], keys[number] if number < len(keys) else "")
            alive &= self._holders.get(content, 0)
            if not alive:
                break
            for slot in range(len(held)):
                if alive >> slot & 1:
                    held[slot] = start + block_size
        return held

    def _drop(self, slot: int, content: int) -> None:
        left = self._holders.get(content, 0) & ~(1 << slot)
        if left:
            self._holders[content] = left
        else:
            self._holders.pop(content, None)


def _next(content: int, tokens: Sequence[int], key: str) -> int:
    """The name of a block by what it holds and what is before it; 128 bits, since tokens come from clients."""
    data = b"%d\0%b\0%b" % (content, key.encode(), array("q", tokens).tobytes())
    return int.from_bytes(hashlib.blake2b(data, digest_size=16).digest(), "big")


class Verdict(enum.StrEnum):
    """What to do with a batch."""

    APPLY = "apply"
    SKIP = "skip"
    """It was applied already, or the replay will bring it."""
    REPLAY = "replay"
    """Batches are missing: leave this one, and ask the replay socket from `expected` on."""
    CLEAR_AND_APPLY = "clear-and-apply"
    """The engine is another one now, or what is missing is gone for good: forget all, then apply."""


class BatchOrder:
    """Follows the sequence numbers of one publisher (one data-parallel rank of a replica)."""

    __slots__ = ("_last_live", "_replaying", "expected")

    def __init__(self) -> None:
        self.expected = 0
        self._last_live = -1
        self._replaying = False

    @property
    def replaying(self) -> bool:
        """Whether a replay was asked for and has not ended."""
        return self._replaying

    def live(self, number: int) -> Verdict:
        """A batch came from the publishing socket, where numbers only grow while the engine lives."""
        if number <= self._last_live:
            # An engine restarted in place counts from 0 again.
            self._last_live = number
            self.expected = number + 1
            self._replaying = False
            return Verdict.CLEAR_AND_APPLY
        self._last_live = number
        if number < self.expected or self._replaying:
            return Verdict.SKIP
        if number > self.expected:
            self._replaying = True
            return Verdict.REPLAY
        self.expected += 1
        return Verdict.APPLY

    def replayed(self, number: int) -> Verdict:
        """A batch came from the replay socket."""
        if number < self.expected:
            return Verdict.SKIP
        lost = number > self.expected
        self.expected = number + 1
        return Verdict.CLEAR_AND_APPLY if lost else Verdict.APPLY

    def replay_ended(self) -> bool:
        """The replay is over, or there is none. Whether batches are still missing: then forget all, and go on."""
        self._replaying = False
        missing = self.expected <= self._last_live
        self.expected = max(self.expected, self._last_live + 1)
        return missing
