"""How long work tells how far it is."""

from typing import Protocol


class ProgressSink(Protocol):
    """Told of progress, from any thread."""

    def update(self, phase: str, done: int, total: int | None) -> None:
        """`done` of `total` bytes of a phase (`download`, `unpack`, `check`); `total` is `None` while unknown."""


class Silent:
    """For when nobody watches."""

    def update(self, phase: str, done: int, total: int | None) -> None:
        """Drop it."""
