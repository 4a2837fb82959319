"""Blocks that nearly every request begins with say nothing about where a request belongs."""

from collections.abc import Sequence

NEARLY_ALL = 0.8
"""Of recent requests. A system prompt of one big tenant stays below it in a mixed fleet and then still tells apart."""

_WINDOW = 512
"""Requests after which counts are halved: a changed system prompt is noticed within about a thousand requests."""

_FEW = 8
"""Requests below which everything would look shared."""

_MOST_TRACKED = 4096
"""Blocks counted at once; a bound, since first blocks may all differ."""


class SharedPrefix:
    """Counts how many recent requests begin with the same blocks, only as deep as they do."""

    __slots__ = ("_counts", "_requests")

    def __init__(self) -> None:
        self._requests = 0
        self._counts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def leading(self, blocks: Sequence[int]) -> int:
        """How many of these leading blocks are shared by nearly all requests; one dict operation for each and one more.

        Nothing is shared until a few requests were seen.
        """
        needed = NEARLY_ALL * self._requests
        if self._requests < _FEW:
            return 0
        get = self._counts.get
        depth = 0
        for block in blocks:
            if get(block, 0) < needed:
                break
            depth += 1
        return depth

    def count(self, blocks: Sequence[int]) -> None:
        """A request began with these blocks. Counts one block deeper than what is shared now."""
        counts = self._counts
        self._requests += 1
        if self._requests >= _WINDOW:
            self._halve()
        for block in blocks[: self.leading(blocks) + 1]:
            if block in counts:
                counts[block] += 1
            elif len(counts) < _MOST_TRACKED:
                counts[block] = 1

    def _halve(self) -> None:
        self._requests //= 2
        halved = [(block, count // 2) for block, count in self._counts.items() if count > 1]
        self._counts.clear()
        self._counts.update(halved)


def key_of(blocks: Sequence[int], skipped: int, depth: int = 2) -> int | None:
    """The hash that a request is placed by: `depth` blocks beyond those skipped, or as far as it goes.

    `None` if it has no block of its own. Hashes are chained, so one stands for all before it.
    """
    if len(blocks) <= skipped:
        return None
    return blocks[min(skipped + depth, len(blocks)) - 1]
