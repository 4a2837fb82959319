"""How good a detector is: what it found beside what is there.

A true span counts as found when findings of its entity cover it wholly; a finding counts as true when it overlaps a
true span of its entity. *Covered* is what the entity's name does not matter for: whether anything was left to read.
"""

from collections.abc import Iterable, Sequence

import msgspec


class Span(msgspec.Struct, frozen=True):
    """text[start:end] is an `entity`."""

    start: int
    end: int
    entity: str


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a corpus: a text, and all there is to find in it."""

    text: str
    spans: tuple[Span, ...] = ()
    locale: str = ""


class Score(msgspec.Struct):
    """Counts of one entity. Ratios are 1 where there was nothing to find, or nothing was found."""

    true: int = 0
    found: int = 0
    covered: int = 0
    findings: int = 0
    right: int = 0

    @property
    def recall(self) -> float:
        """The share of what is there that was found."""
        return self.found / self.true if self.true else 1.0

    @property
    def coverage(self) -> float:
        """The share of what is there of which nothing was left, whatever it was called."""
        return self.covered / self.true if self.true else 1.0

    @property
    def precision(self) -> float:
        """The share of what was found that is there."""
        return self.right / self.findings if self.findings else 1.0


def score(documents: Iterable[tuple[Sequence[Span], Sequence[Span]]]) -> dict[str, Score]:
    """Scores by entity of (true spans, found spans) of each document."""
    scores: dict[str, Score] = {}
    for true, found in documents:
        for span in true:
            entry = scores.setdefault(span.entity, Score())
            entry.true += 1
            entry.found += _covers(span, [each for each in found if each.entity == span.entity])
            entry.covered += _covers(span, found)
        for each in found:
            entry = scores.setdefault(each.entity, Score())
            entry.findings += 1
            entry.right += any(_overlap(each, span) for span in true if span.entity == each.entity)
    return dict(sorted(scores.items()))


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def _covers(span: Span, found: Iterable[Span]) -> bool:
    at = span.start
    for each in sorted(found, key=lambda one: one.start):
        if each.start <= at < each.end:
            at = each.end
    return at >= span.end
