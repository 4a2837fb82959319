"""The approximate index: which replica was sent which prefix not long ago."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class PrefixIndex:
    """For each replica (a slot, 0 and up) the blocks that it was sent last, `capacity` of them at most.

    One dict from block to a bit mask of slots answers for all replicas at once; an LRU list for each slot bounds it.
    A request's blocks are touched from last to first, as engines do, so a prefix is never forgotten before what
    follows it.
    """

    __slots__ = ("_capacity", "_holders", "_recent")

    def __init__(self, slots: int, capacity: int) -> None:
        self._capacity = capacity
        self._holders: dict[int, int] = {}
        self._recent: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(slots)]

    def __len__(self) -> int:
        """Different blocks known."""
        return len(self._holders)

    @property
    def slots(self) -> int:
        """Replicas that there is room for."""
        return len(self._recent)

    def matched(self, blocks: Sequence[int]) -> list[int]:
        """For each slot the leading blocks of `blocks` that it should hold."""
        counts = [0] * len(self._recent)
        if not blocks:
            return counts
        get = self._holders.get
        alive = get(blocks[0], 0)
        length = 0
        for block in blocks:
            holding = alive & get(block, 0)
            if holding != alive:
                _write(counts, alive & ~holding, length)
                alive = holding
            if not alive:
                return counts
            length += 1
        _write(counts, alive, length)
        return counts

    def sent(self, blocks: Sequence[int], slot: int) -> None:
        """A request with these blocks went to `slot`."""
        recent = self._recent[slot]
        holders = self._holders
        touch = recent.move_to_end
        bit = 1 << slot
        get = holders.get
        for block in reversed(blocks):
            if block in recent:
                touch(block)
            else:
                recent[block] = None
                holders[block] = get(block, 0) | bit
        self._trim(recent, bit)

    def _trim(self, recent: OrderedDict[int, None], bit: int) -> None:
        holders = self._holders
        for _ in range(len(recent) - self._capacity):
            block, _nothing = recent.popitem(last=False)
            left = holders[block] & ~bit
            if left:
                holders[block] = left
            else:
                del holders[block]

    def clear(self, slot: int) -> None:
        """The replica of `slot` lost its cache: it was restarted, or it is gone."""
        self._forget(self._recent[slot], ~(1 << slot))
        self._recent[slot] = OrderedDict()

    def add(self) -> int:
        """One slot more; its number."""
        self._recent.append(OrderedDict())
        return len(self._recent) - 1

    def _forget(self, blocks: Iterable[int], keep: int) -> None:
        holders = self._holders
        for block in blocks:
            left = holders[block] & keep
            if left:
                holders[block] = left
            else:
                del holders[block]


def _write(counts: list[int], mask: int, value: int) -> None:
    """Set the count of every slot in `mask`."""
    while mask:
        lowest = mask & -mask
        counts[lowest.bit_length() - 1] = value
        mask ^= lowest
