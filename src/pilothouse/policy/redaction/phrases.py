"""Lists of phrases: found by look-ups of words, so 100,000 phrases cost what one costs."""

import re
from collections.abc import Iterable

_TOKEN = re.compile(r"\w+|[^\w\s]")
_JOINT = "\x1f"
MAX_TOKENS = 32
"""More words are a paragraph, not a phrase."""
MAX_SPACES = 8
"""Spaces between two words of a phrase; a wider gap is not one phrase."""


class PhraseLists:
    """Several lists, each with an index. Case and the width of spaces make no difference; whole words only."""

    __slots__ = ("_beginnings", "_longest", "_phrases", "max_chars")

    def __init__(self, lists: Iterable[Iterable[str]]) -> None:
        """Build from phrases.

        Raises:
            ValueError: a phrase has no words, or more than MAX_TOKENS.
        """
        self._phrases: dict[str, int] = {}
        self._beginnings: set[str] = set()
        self._longest = 1
        self.max_chars = 0
        for index, phrases in enumerate(lists):
            for phrase in phrases:
                tokens = _TOKEN.findall(phrase.casefold())
                if not 0 < len(tokens) <= MAX_TOKENS:
                    raise ValueError(f"a phrase has between 1 and {MAX_TOKENS} words, this one {len(tokens)}")
                self._phrases.setdefault(_JOINT.join(tokens), index)
                joined = tokens[0]
                for token in tokens[1:]:
                    self._beginnings.add(joined)
                    joined += _JOINT + token
                self._longest = max(self._longest, len(tokens))
                self.max_chars = max(self.max_chars, len(phrase) + MAX_SPACES * len(tokens))

    def spans(self, text: str, start: int, end: int) -> list[tuple[int, int, int]]:
        """(list, start, end) of the phrases that begin in text[start:end], the longest for each beginning."""
        tokens = [(match[0].casefold(), match.start(), match.end()) for match in _TOKEN.finditer(text, start)]
        found = []
        phrases, beginnings = self._phrases, self._beginnings
        for index, (joined, begins, ends) in enumerate(tokens):
            if begins >= end:
                break
            best = (phrases[joined], begins, ends) if joined in phrases else None
            following = index + 1
            while joined in beginnings and following < len(tokens):
                word, word_begins, word_ends = tokens[following]
                if word_begins - ends > MAX_SPACES:
                    break
                joined += _JOINT + word
                ends = word_ends
                if joined in phrases:
                    best = (phrases[joined], begins, ends)
                following += 1
            if best is not None:
                found.append(best)
        return found

    def open_at_end(self, text: str, start: int) -> int:
        """Where the earliest phrase that may still be unfinished at the end of `text` begins; its length if none.

        Nothing before `start` is looked at.
        """
        tokens = [(match[0].casefold(), match.start(), match.end()) for match in _TOKEN.finditer(text, start)]
        earliest = len(text)
        for index in range(len(tokens) - 1, max(-1, len(tokens) - 1 - self._longest), -1):
            if self._is_open([token for token, _, _ in tokens[index:]], ends_inside=tokens[-1][2] == len(text)):
                earliest = tokens[index][1]
        return earliest

    def _is_open(self, words: list[str], *, ends_inside: bool) -> bool:
        """Whether these words, the last perhaps unfinished, may be the beginning of a phrase."""
        if ends_inside:
            words = words[:-1]
        return not words or _JOINT.join(words) in self._beginnings
