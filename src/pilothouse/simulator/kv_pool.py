"""Paged KV memory with a prefix cache: blocks are held, idle (kept for a later hit, in LRU order), or empty."""

from pilothouse.simulator.turn import Turn


class KvPool:
    """The blocks of one engine.

    `free` counts every block that no turn holds, idle ones too: an idle block is given away when there is no empty one.
    A prefix unit (the trace's unit of hashing) is `unit_blocks` blocks and is held by as many turns as share it. What a
    turn holds beyond shared units is its own; after its end those blocks are idle under the turn itself, since an
    engine keeps them in the same LRU order, and a turn that was preempted may come back to them.
    """

    __slots__ = ("_block", "_idle", "_idle_blocks", "_refs", "blocks", "caching", "free", "unit_blocks", "unit_tokens")

    def __init__(self, blocks: int, block_tokens: int, unit_tokens: int, *, caching: bool = True) -> None:
        if unit_tokens % block_tokens:
            raise ValueError(f"a prefix unit of {unit_tokens} tokens is not whole blocks of {block_tokens}")
        self.blocks = blocks
        self.free = blocks
        self.caching = caching
        self._block = block_tokens
        self.unit_tokens = unit_tokens
        self.unit_blocks = unit_tokens // block_tokens
        self._refs: dict[int, int] = {}
        self._idle: dict[int | Turn, int] = {}
        self._idle_blocks = 0

    @property
    def idle(self) -> int:
        """Blocks that are kept for a later hit."""
        return self._idle_blocks

    def hit_tokens(self, units: tuple[int, ...]) -> int:
        """Tokens of the leading units that are here, whoever holds them."""
        refs, idle = self._refs, self._idle
        found = 0
        for unit in units:
            if unit not in refs and unit not in idle:
                break
            found += 1
        return found * self.unit_tokens

    def admit(self, turn: Turn, length: int) -> bool:
        """Give `turn` the blocks for `length` tokens and set `turn.computed` to what it need not compute.

        False, with nothing changed, when they are not there. As vLLM does, the whole input has to fit before any of it
        is scheduled (`scheduler_reserve_full_isl`), and the last token is always computed, for its logits.
        """
        refs, idle = self._refs, self._idle
        units = turn.units if self.caching else ()
        held = hits = 0
        for unit in units:
            if unit in refs:
                held += 1
            elif unit not in idle:
                break
            hits += 1
        total = -(-length // self._block)
        need = total - held * self.unit_blocks
        if need > self.free:
            return False
        unit_blocks = self.unit_blocks
        for unit in units[:hits]:
            if unit in refs:
                refs[unit] += 1
            else:
                del idle[unit]
                self._idle_blocks -= unit_blocks
                refs[unit] = 1
        shared = hits
        for unit in units[hits:]:
            # A later unit may be here although an earlier one is not; an engine then keeps two copies of it.
            if unit in refs or unit in idle:
                break
            refs[unit] = 1
            shared += 1
        computed = hits * self.unit_tokens
        own = idle.pop(turn, 0)
        if own:
            self._idle_blocks -= own
            if hits == len(units):
                computed += own * self._block
        turn.shared = units if shared == len(units) else units[:shared]
        turn.own_blocks = total - shared * unit_blocks
        turn.computed = min(computed, length - 1)
        self.free -= need
        if self._idle_blocks > self.free:
            self._evict()
        return True

    def grow(self, blocks: int) -> None:
        """Take blocks for decoded tokens; which turn they are of is known when it leaves."""
        self.free -= blocks
        if self._idle_blocks > self.free:
            self._evict()

    def release(self, turn: Turn, tokens: int) -> None:
        """Take back everything of a turn that holds `tokens` computed tokens, the end of its text first."""
        own = turn.own_blocks
        self.free += own
        if self.caching:
            kept = min(own, tokens // self._block - len(turn.shared) * self.unit_blocks)
            if kept > 0:
                self._idle[turn] = kept
                self._idle_blocks += kept
            refs, idle, unit_blocks = self._refs, self._idle, self.unit_blocks
            gone = 0
            for unit in reversed(turn.shared):
                count = refs[unit] - 1
                if count:
                    refs[unit] = count
                else:
                    del refs[unit]
                    idle[unit] = unit_blocks
                    gone += unit_blocks
            self.free += gone
            self._idle_blocks += gone
        turn.shared = ()
        turn.own_blocks = 0

    def held(self) -> int:
        """Blocks held by turns, counted from the parts; a check on `free`, without what decoding took."""
        return len(self._refs) * self.unit_blocks

    def _evict(self) -> None:
        """Empty the least recently used idle blocks, as many as are needed."""
        idle = self._idle
        excess = self._idle_blocks - self.free
        while excess > 0:
            key = next(iter(idle))
            blocks = idle[key]
            if blocks > excess and isinstance(key, Turn):
                idle[key] = blocks - excess
                blocks = excess
            else:
                del idle[key]
            self._idle_blocks -= blocks
            excess -= blocks
