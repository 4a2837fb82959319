"""What it costs and what it gains to move a session, between two turns, to another replica."""

import msgspec

MARGIN = 0.1
"""Share of the prompt by which a move must pay, so that sessions do not go back and forth over nothing."""


class MovePrice(msgspec.Struct, frozen=True, kw_only=True):
    """A move weighed, in tokens: of KV cache that would be lost, and of queue that would be saved."""

    lost: int
    saved: int
    margin: int

    @property
    def pays(self) -> bool:
        """Whether to move."""
        return self.saved > self.lost + self.margin


def price(*, prompt: int, held_at_home: int, held_there: int, load_at_home: int, load_there: int) -> MovePrice:
    """The price of serving a prompt of `prompt` tokens elsewhere than at home.

    A token of cache lost is prefilled again, and a token in the queue is waited for: both are the same work, done
    before the first token of the answer.
    """
    return MovePrice(
        lost=max(0, held_at_home - held_there),
        saved=load_at_home - load_there,
        margin=int(MARGIN * prompt) + 1,
    )
