"""The KV cache as blocks: who holds them, which are remembered by content, which is forgotten first.

As vLLM's block pool: a block that nobody holds keeps its content until it is needed for something else, and the one
that was freed first goes first. Pure.
"""

from collections import OrderedDict

from pilothouse.testing.fake_engine.cache_events import BlockRemoved, BlocksCleared, CacheEvent


class BlockPool:
    """`total` blocks. Every block is either held (by one or more sequences) or free; a free one may be remembered."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.events: list[CacheEvent] = []
        self._holders = [0] * total
        self._hash_of: list[int | None] = [None] * total
        self._by_hash: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(total))

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks that somebody holds."""
        return self.total - len(self._free)

    @property
    def remembered(self) -> frozenset[int]:
        """The content hashes that a prefix can hit now."""
        return frozenset(self._by_hash)

    def find(self, content_hash: int) -> int | None:
        """The block with this content."""
        return self._by_hash.get(content_hash)

    def is_free(self, block: int) -> bool:
        """Nobody holds it."""
        return self._holders[block] == 0

    def hold(self, block: int) -> None:
        """One more sequence uses a remembered block."""
        if self._holders[block] == 0:
            del self._free[block]
        self._holders[block] += 1

    def take(self, count: int) -> list[int]:
        """`count` blocks for new content, forgetting what they remembered. The caller has looked at `free`."""
        blocks: list[int] = []
        forgotten: list[int] = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            content_hash = self._hash_of[block]
            if content_hash is not None:
                self._hash_of[block] = None
                del self._by_hash[content_hash]
                forgotten.append(content_hash)
            self._holders[block] = 1
            blocks.append(block)
        if forgotten:
            self.events.append(BlockRemoved(block_hashes=forgotten, medium="GPU"))
        return blocks

    def remember(self, block: int, content_hash: int) -> bool:
        """A held block is full and can be hit from now on. False when another block has that content already."""
        if content_hash in self._by_hash:
            return False
        self._by_hash[content_hash] = block
        self._hash_of[block] = content_hash
        return True

    def give_back(self, blocks: list[int]) -> None:
        """A sequence lets go of its blocks, given in its order. The end of a sequence is forgotten before its start."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None

    def forget_all(self) -> None:
        """Forget all content; what is held stays held."""
        self._by_hash.clear()
        self._hash_of = [None] * self.total
        self.events.append(BlocksCleared())

    def invariants(self) -> None:
        """Raise AssertionError when a block is lost, held and free at once, or remembered twice."""
        held = {block for block, holders in enumerate(self._holders) if holders > 0}
        free = set(self._free)
        assert min(self._holders, default=0) >= 0
        assert held.isdisjoint(free)
        assert len(held) + len(free) == self.total
        remembered = {block: value for block, value in enumerate(self._hash_of) if value is not None}
        assert {value: block for block, value in remembered.items()} == self._by_hash

    def drain_events(self) -> list[CacheEvent]:
        """What happened to remembered blocks since the last call."""
        events, self.events = self.events, []
        return events
