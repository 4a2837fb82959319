"""One set of detectors, compiled: what is in a text, and how much of its end must wait. Shared by all streams."""

import re
from collections.abc import Callable

from pilothouse.model.filters import Action
from pilothouse.policy.redaction.contact import CONTACT, phone
from pilothouse.policy.redaction.detector import CONTEXT_CHARS, Candidate, Detector
from pilothouse.policy.redaction.engine import Engine, Span
from pilothouse.policy.redaction.expressions import Expression
from pilothouse.policy.redaction.financial import FINANCIAL
from pilothouse.policy.redaction.holding import (
    AWS_SECRET,
    PLAIN,
    RUN,
    RUN_TO_END,
    is_strong,
    rest_pattern,
    tail_pattern,
)
from pilothouse.policy.redaction.identity import IDENTITY, national_ids
from pilothouse.policy.redaction.phrases import PhraseLists
from pilothouse.policy.redaction.plan import FilterPlan
from pilothouse.policy.redaction.secrets import SECRETS

_OWN_PRIORITY = 6
_AWS_SECRET_CHARS = 41
_OWN_REST = re.compile(r"[^\s\"]*+")
MIN_OPEN_CHARS = 4
"""So much of an operator's own expression must be there for its unfinished match to be more than a beginning."""


class Match:
    """A value in a text: text[start:end].

    For a value decided at its marker, `rest` and `closing` say how it goes on. `also` are the entities that overlap it.
    """

    __slots__ = ("also", "closing", "end", "entity", "priority", "rest", "start")

    def __init__(
        self,
        start: int,
        end: int,
        entity: str,
        priority: int,
        rest: re.Pattern[str] | None = None,
        closing: re.Pattern[str] | None = None,
    ) -> None:
        self.start = start
        self.end = end
        self.entity = entity
        self.priority = priority
        self.rest = rest
        self.closing = closing
        self.also: tuple[str, ...] = ()


def detectors_of(plan: FilterPlan) -> list[Detector]:
    """The built-in detectors of the plan's entities."""
    named = plan.actions
    found = [each for each in (*CONTACT, *FINANCIAL, *IDENTITY, *SECRETS) if each.entity in named]
    if "phone" in named:
        found.append(phone(plan.phone_regions))
    if "national_id" in named:
        found.extend(national_ids(plan.id_countries))
    return found


class Matcher:
    """The detectors of a plan.

    Attributes:
        actions: What is done with each entity.
        bound: The most characters that wait: the longest value or beginning that decides. What is still open there
            is treated as found.
        plain: Matches a text that has nothing but words, and says in group 1 what of it is decided; `None` if the
            operator's own expressions and phrases have to be looked for.
        weak_bound: The most that wait without a sign of a long value (an @, a scheme, a marker).
    """

    __slots__ = (
        "_by_trigger",
        "_marked",
        "_open_own",
        "_own",
        "_own_max",
        "_own_names",
        "_own_spans",
        "_phrase_names",
        "_phrases",
        "_plain",
        "_rest",
        "_secret_words",
        "_tail",
        "_triggers",
        "_word_owner",
        "_words",
        "_wordy",
        "actions",
        "bound",
        "plain",
        "weak_bound",
    )

    def __init__(self, plan: FilterPlan, engine: Engine) -> None:
        """Compile.

        Raises:
            ValueError: an operator's expression or phrase cannot be used.
        """
        self.actions: dict[str, Action] = dict(plan.actions)
        detectors = detectors_of(plan)
        self._marked = [each for each in detectors if each.marker is not None]
        self._plain = detectors
        shapes = {shape for each in detectors for shape in each.shapes}
        self._tail = tail_pattern(shapes)
        self._rest = rest_pattern(shapes)
        self._secret_words = "aws_secret" in shapes
        self.plain = PLAIN.match if "run" in shapes and not plan.patterns and not plan.phrases else None
        expressions: list[str] = []
        self._by_trigger: list[list[Detector]] = []
        for each in detectors:
            for trigger in each.triggers:
                if trigger not in expressions:
                    expressions.append(trigger)
                    self._by_trigger.append([])
                self._by_trigger[expressions.index(trigger)].append(each)
        self._triggers: Callable[[str], list[int]] = engine.triggers(expressions) if expressions else _no_triggers
        self._wordy = [each for each in detectors if each.words]
        word_expressions = [word for each in self._wordy for word in each.words]
        self._word_owner = [id(each) for each in self._wordy for _ in each.words]
        self._words: Callable[[str], list[int]] = engine.triggers(word_expressions) if self._wordy else _no_triggers
        self._own = [Expression(each.pattern) for each in plan.patterns]
        self._own_names = [each.name for each in plan.patterns]
        self._own_max = max((each.max_chars for each in plan.patterns), default=0)
        self._own_spans: Callable[[str], list[Span]] | None = None
        self._open_own: Callable[[str], tuple[int, int] | None] | None = None
        if plan.patterns:
            cases = [each.ignore_case for each in plan.patterns]
            self._own_spans = engine.spans([(each.full, case) for each, case in zip(self._own, cases, strict=True)])
            self._open_own = engine.open_at_end(
                [(each.beginning, case) for each, case in zip(self._own, cases, strict=True)]
            )
        self._phrases = PhraseLists(each.phrases for each in plan.phrases) if plan.phrases else None
        self._phrase_names = [each.name for each in plan.phrases]
        phrase_max = self._phrases.max_chars if self._phrases else 0
        self.weak_bound = max((each.sign_chars or each.max_chars for each in detectors), default=1)
        self.bound = max((*(each.max_chars for each in detectors), self._own_max, phrase_max, 1))

    # How much must wait.

    def open_from(self, text: str, done: int) -> int:
        """Where the earliest unfinished value in text[done:] begins; len(text) if there is none."""
        length = len(text)
        start = length - self.bound
        weak = length - self.weak_bound
        if start <= done:
            # What follows a value without a break is no longer in the middle of a run: it may begin a value.
            found = self._rest.match(text, done) or self._tail.search(text, done)
            opened = found.start() if found else length
        else:
            if not is_strong(text[start:]):
                start = weak
            # A run that began before the bound may hold a value that began inside it.
            found = self._tail.search(text, start)
            opened = start if RUN_TO_END.match(text, start) else (found.start() if found else length)
        if opened < weak and not is_strong(text[opened:]):
            opened = weak
        if self._secret_words and "ecret" in text[-_AWS_SECRET_CHARS - CONTEXT_CHARS :].casefold():
            value = AWS_SECRET.search(text, max(done, length - _AWS_SECRET_CHARS))
            opened = min(opened, value.start()) if value else opened
        if self._open_own is not None:
            opened = min(opened, self._open_pattern(text, done)[0])
        if self._phrases is not None:
            first = max(done, length - self._phrases.max_chars)
            opened = min(opened, self._phrases.open_at_end(text, first))
        return opened

    def _open_pattern(self, text: str, done: int) -> tuple[int, int]:
        """(start, index) of the operator's expression that is unfinished at the end of `text`."""
        assert self._open_own is not None
        # One character more, for the edge of a word.
        first = max(done, len(text) - self._own_max)
        before = max(0, first - 1)
        found = self._open_own(text[before:])
        if found is None:
            return len(text), 0
        return max(first, before + found[0]), found[1]

    def overlong(self, text: str, done: int) -> Match | None:
        """A value still open at the bound: an operator's expression that has gone on for as long as it may."""
        if self._open_own is None or len(text) - done < self._own_max:
            return None
        start, index = self._open_pattern(text, done)
        if len(text) - start < self._own_max:
            return None
        return Match(start, len(text), self._own_names[index], _OWN_PRIORITY, _OWN_REST)

    def unfinished(self, text: str, done: int) -> Match | None:
        """The first value in text[done:] that is open at its end and more than the beginning of a word."""
        best: Match | None = None
        for each in self._plain:
            found = each.open.search(text, done) if each.open is not None else None
            if found is not None and (best is None or found.start() < best.start):
                best = Match(found.start(), len(text), each.entity, each.priority, RUN)
        if self._open_own is not None:
            start, index = self._open_pattern(text, done)
            if len(text) - start >= MIN_OPEN_CHARS and (best is None or start < best.start):
                best = Match(start, len(text), self._own_names[index], _OWN_PRIORITY, _OWN_REST)
        return best

    def rest_of(self, entity: str) -> re.Pattern[str]:
        """How a value goes on that was taken as found before its end was known."""
        return _OWN_REST if entity in self._own_names or entity in self._phrase_names else RUN

    # What is in it.

    def triggered(self, text: str, start: int = 0) -> list[Detector]:
        """The detectors that may find something in text[start:]; nearly always none."""
        hits = self._triggers(text[start:] if start else text)
        if not hits:
            return []
        found: dict[int, Detector] = {}
        wordy = False
        for index in hits:
            for each in self._by_trigger[index]:
                found[id(each)] = each
                wordy = wordy or bool(each.words)
        if wordy:
            owner = self._word_owner
            said = {owner[index] for index in self._words(text[max(0, start - CONTEXT_CHARS) :])}
            for each in self._wordy:
                if id(each) not in said:
                    found.pop(id(each), None)
        return list(found.values())

    @property
    def has_own(self) -> bool:
        """Whether there are expressions or phrases of the operator's, which have no triggers."""
        return self._own_spans is not None or self._phrases is not None

    def first_marker(self, text: str, start: int, end: int, among: list[Detector] | None = None) -> Match | None:
        """The first value that is decided at its marker and begins in text[start:end]."""
        best: Match | None = None
        for each in self._marked if among is None else among:
            if each.marker is None:
                continue
            found = each.marker.search(text, start)
            if found is not None and found.start() < end:
                match = Match(found.start(), found.end(), each.entity, each.priority, each.rest, each.closing)
                if best is None or (match.start, -match.priority) < (best.start, -best.priority):
                    best = match
        return best

    def matches(self, text: str, start: int, end: int, stop: int, detectors: list[Detector]) -> list[Match]:
        """The values that begin in text[start:end], by these detectors and the operator's own, in order of their start.

        No value goes beyond `stop`, and those that overlap are joined.
        """
        found: list[Match] = []
        for each in detectors:
            for seen in each.pattern.finditer(text, start, stop):
                begin = seen.start(1)
                if begin >= end:
                    break
                size = each.check(Candidate(text, begin, seen[1]))
                if size:
                    found.append(Match(begin, begin + size, each.entity, each.priority))
        if self._own_spans is not None:
            before = max(0, start - 1)
            for index, first, last in self._own_spans(text[before:stop]):
                if start <= first + before < end:
                    found.append(self._own_match(text, first + before, last + before, index, stop))
        if self._phrases is not None:
            for index, first, last in self._phrases.spans(text[:stop], start, end):
                found.append(Match(first, last, self._phrase_names[index], _OWN_PRIORITY))
        return _joined(found) if len(found) > 1 else found

    def _own_match(self, text: str, start: int, end: int, index: int, stop: int) -> Match:
        if end - start >= self._own_max:
            found = _OWN_REST.match(text, end, stop)
            end = found.end() if found else end
        return Match(start, end, self._own_names[index], _OWN_PRIORITY)


def _no_triggers(text: str) -> list[int]:
    return []


def _joined(matches: list[Match]) -> list[Match]:
    """Matches that overlap become one, named for the one with the highest priority, then the longest."""
    matches.sort(key=lambda each: (each.start, -each.end))
    joined: list[Match] = []
    leading: tuple[int, int] = (0, 0)
    for each in matches:
        rank = (each.priority, each.end - each.start)
        if joined and each.start < joined[-1].end:
            last = joined[-1]
            last.end = max(last.end, each.end)
            last.also = (*last.also, last.entity, each.entity)
            if rank > leading:
                last.entity, leading = each.entity, rank
        else:
            joined.append(each)
            leading = rank
    return joined
