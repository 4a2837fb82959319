"""What a detector is: how its values look, what makes one true, and how long one may be."""

import re
from collections.abc import Callable

import msgspec

CONTEXT_CHARS = 64
"""Characters before a value in which its context words are looked for; so many of the text that has gone are kept."""


class Candidate:
    """Something that looks like a value: `raw` begins at `start` of `text`, what stands before it is its context."""

    __slots__ = ("raw", "start", "text")

    def __init__(self, text: str, start: int, raw: str) -> None:
        self.text = text
        self.start = start
        self.raw = raw

    def follows(self, words: re.Pattern[str]) -> bool:
        """Whether one of the context `words` stands shortly before."""
        return words.search(self.text, max(0, self.start - CONTEXT_CHARS), self.start) is not None


class Detector(msgspec.Struct, frozen=True, kw_only=True):
    """One way to find one entity.

    Attributes:
        entity: The entity, for example `email`.
        group: `pii` or `secrets`.
        triggers: Expressions (RE2 and Hyperscan read them alike), one of which is in every text that has a value.
        words: Expressions, one of which must stand shortly before a value; none where a value needs no words.
        pattern: Group 1 is what looks like a value. It sees one character before and after.
        check: How many characters of a candidate are the value; 0 if it is none.
        max_chars: The longest value that `pattern` finds.
        sign_chars: How much of a value may be there without a sign that it is long (`holding.STRONG`); the whole of it
            if 0.
        shapes: What unfinished values look like; keys of `holding.SHAPES`.
        priority: Of overlapping values the higher one gives its name; a checksum outranks a shape.
        marker: For what is decided before its end: the beginning that decides. What `rest` matches is then swallowed,
            or all up to `closing`, which is not longer than CONTEXT_CHARS.
        open: An unfinished value that is more than the beginning of one, anchored at the end of the text.
    """

    entity: str
    group: str
    triggers: tuple[str, ...]
    pattern: re.Pattern[str]
    max_chars: int
    shapes: frozenset[str]
    sign_chars: int = 0
    words: tuple[str, ...] = ()
    check: Callable[[Candidate], int] = lambda candidate: len(candidate.raw)
    priority: int = 5
    marker: re.Pattern[str] | None = None
    rest: re.Pattern[str] | None = None
    closing: re.Pattern[str] | None = None
    open: re.Pattern[str] | None = None


def secret(
    entity: str, trigger: str, marker: str, rest: str, shapes: tuple[str, ...] = ("run",), *, closing: str | None = None
) -> Detector:
    """A detector of what is decided at its `marker` and ends behind `closing`, or where `rest` ends."""
    return Detector(
        entity=entity,
        group="secrets",
        triggers=(trigger,),
        pattern=re.compile(f"({marker})"),
        max_chars=MARKER_CHARS,
        sign_chars=64,
        shapes=frozenset(shapes),
        priority=9,
        marker=re.compile(marker),
        rest=re.compile(rest),
        closing=None if closing is None else re.compile(closing),
    )


MARKER_CHARS = 320
"""The longest beginning that decides: an address of 64 characters before the @ and 254 behind it (RFC 5321)."""
