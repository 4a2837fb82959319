"""The pump: text in as it comes, out as soon as it is decided.

Everything before the earliest unfinished value is decided and searched once. So a result depends on the text alone,
never on how it was cut.
"""

import re
from typing import TYPE_CHECKING

import msgspec

from pilothouse.model.filters import Action
from pilothouse.policy.redaction.detector import CONTEXT_CHARS
from pilothouse.policy.redaction.json_source import INSIDE, JsonSource
from pilothouse.policy.redaction.matcher import Match, Matcher
from pilothouse.policy.redaction.normal_form import normal_form
from pilothouse.policy.redaction.turn import Turn

if TYPE_CHECKING:
    import hmac

MAX_DECIDED_CHARS = 512
"""Decided text that is kept before the window is cut back to what context words need."""
_PIECE_CHARS = 4096
_SMALL_PIECE_CHARS = 1024
"""Long texts are searched in pieces of so many characters, so that what one place triggers is looked for nearby."""
_SEPARATORS = re.compile(r"[\s\-()/]")
_NUMBER = re.compile(r"[0-9+\-.eE]*")

_LOOKED_AT_CHARS = 16
"""From so many waiting characters on it is worth looking for the marker of a secret, which then need not be kept."""

Edit = tuple[int, int, str]
"""(start, end, replacement): text[start:end] of the whole stream is to be replaced. Start and end may be the same."""


class Finding(msgspec.Struct, frozen=True):
    """A match: text[start:end] of the text as it was fed, and what was done. Kept for tests of filters alone."""

    start: int
    end: int
    entity: str
    action: Action


class _Swallowed:
    """A value that was decided at its marker and has not ended yet."""

    __slots__ = ("action", "closing", "covered", "digest", "entity", "first", "rest", "start")

    def __init__(self, match: Match, action: Action, digest: "hmac.HMAC", covered: int) -> None:
        self.first = self.covered = covered
        self.entity = match.entity
        self.rest = match.rest
        self.closing = match.closing
        self.start = match.start
        self.action = action
        self.digest = digest


class TextPump:
    """One text: a choice's content, say. Positions count the characters of the text as it was fed.

    Attributes:
        edits: What has to be replaced, in order; the caller takes them out.
        blocked: The entity that ends the turn, once one was found.
        findings: Where what was found, if somebody put a list there.
    """

    __slots__ = (
        "_done",
        "_matcher",
        "_offsets",
        "_origin",
        "_plain",
        "_swallowed",
        "_text",
        "_total",
        "_turn",
        "blocked",
        "edits",
        "findings",
    )

    def __init__(self, matcher: Matcher, turn: Turn) -> None:
        self._matcher = matcher
        self._plain = matcher.plain
        self._turn = turn
        self._text = ""
        self._done = 0
        self._origin = 0
        self._total = 0
        self._offsets: list[int] | None = None
        self._swallowed: _Swallowed | None = None
        self.edits: list[Edit] = []
        self.findings: list[Finding] | None = None
        self.blocked: str | None = None

    @property
    def held(self) -> int:
        """Characters of the normal form that wait."""
        return len(self._text) - self._done

    def feed(self, text: str) -> int:
        """Take more text; say up to where all of it is decided."""
        plain = self._plain
        if plain is not None and self._offsets is None and text.isascii():
            # Nearly always: words. One expression sees that nothing is in them, and where the last one begins.
            window = self._text + text
            found = plain(window, self._done)
            if found is not None and self._swallowed is None and self.blocked is None:
                self._text = window
                self._total += len(text)
                self._done = done = found.end(1)
                if done > MAX_DECIDED_CHARS:
                    self._forget()
                return self._origin + self._done
        if len(text) > _SMALL_PIECE_CHARS:
            self._feed_pieces(text)
        else:
            self._append(text)
            self._advance()
        return self._position(self._done)

    def _feed_pieces(self, text: str) -> None:
        """A long text: at once where a large piece has nothing in it, else in small ones."""
        for start in range(0, len(text), _PIECE_CHARS):
            piece = text[start : start + _PIECE_CHARS]
            if self._take_clean(piece):
                continue
            for small in range(0, len(piece), _SMALL_PIECE_CHARS):
                self._append(piece[small : small + _SMALL_PIECE_CHARS])
                self._advance()

    def _take_clean(self, piece: str) -> bool:
        """Take a piece if no detector would look at it; say whether it was taken."""
        matcher = self._matcher
        if self._offsets is not None or self._swallowed is not None or self.blocked is not None or matcher.has_own:
            return False
        folded, moved = normal_form(piece)
        if moved is not None:
            return False
        window = self._text + folded
        if matcher.triggered(window, self._done):
            return False
        self._text = window
        self._total += len(piece)
        self._done = matcher.open_from(window, self._done)
        if self._done > MAX_DECIDED_CHARS:
            self._forget()
        return True

    def close(self) -> int:
        """The text has ended: what waits is decided by what there is."""
        self._advance(final=True)
        return self._position(self._done)

    def stalled(self) -> int:
        """Nothing has come for long: what is open, and more than the beginning of a word, is treated as found."""
        if self.blocked is None and self._swallowed is None and self._done < len(self._text):
            self._settle()
        return self._position(self._done)

    def _append(self, text: str) -> None:
        if self._offsets is None and text.isascii():
            self._text += text
        else:
            folded, offsets = normal_form(text)
            if self._offsets is None and offsets is not None:
                self._offsets = list(range(self._origin, self._origin + len(self._text)))
            if self._offsets is not None:
                total = self._total
                self._offsets.extend(
                    range(total, total + len(text)) if offsets is None else [total + each for each in offsets]
                )
            self._text += folded
        self._total += len(text)

    def _position(self, index: int) -> int:
        """Where a character of the normal form stands in the text as it was fed."""
        if self._offsets is None:
            return self._origin + index
        return self._offsets[index] if index < len(self._offsets) else self._total

    def _advance(self, *, final: bool = False) -> None:
        """Decide what can be decided."""
        matcher, text = self._matcher, self._text
        while self.blocked is None:
            if self._swallowed is not None:
                self._swallow(final=final)
            done = self._done
            if done == len(text):
                break
            opened = len(text) if final else matcher.open_from(text, done)
            if opened == done and len(text) - done < _LOOKED_AT_CHARS:
                break  # all of it waits, whatever is in it
            detectors = matcher.triggered(text, done)
            if not detectors and not matcher.has_own:
                self._done = opened
                break
            marker = matcher.first_marker(text, done, len(text), detectors)
            if marker is None and not final:
                marker = matcher.overlong(text, done)
            if marker is None:
                self._decide(matcher.matches(text, done, opened, len(text), detectors), opened, final=final)
                break
            self._decide(matcher.matches(text, done, marker.start, marker.start, detectors), marker.start, final=True)
            if self.blocked is None:
                self._begin_swallowing(marker)
        if self._done > MAX_DECIDED_CHARS:
            self._forget()

    def _decide(self, matches: list[Match], until: int, *, final: bool) -> None:
        """Replace `matches`; all before `until` is decided, unless the last match goes beyond."""
        if matches and matches[-1].end > until:
            last = matches[-1]
            if not final and len(self._text) - last.start <= 2 * self._matcher.bound:
                # Something that begins inside it is unfinished, and will be joined to it.
                matches.pop()
                until = last.start
            else:
                until = last.end
        for match in matches:
            action = self._action(match)
            self._note(match, match.end, action)
            if action is Action.BLOCK:
                self.blocked = match.entity
                self._done = match.start
                return
            digest = self._turn.digest()
            value = self._text[match.start : match.end]
            digest.update(_canonical(value).encode("utf-8", "replace"))
            self._replace(match.start, match.end, self._turn.replacement(match.entity, action, digest, value))
        self._done = until

    def _action(self, match: Match) -> Action:
        """The strictest action of the entities that were found there."""
        actions = self._matcher.actions
        action = actions[match.entity]
        for each in match.also:
            if actions[each].strictness > action.strictness:
                action = actions[each]
        self._turn.count(match.entity, action)
        return action

    def _note(self, match: Match, end: int, action: Action) -> None:
        if self.findings is not None:
            self.findings.append(Finding(self._position(match.start), self._position(end), match.entity, action))

    def _replace(self, start: int, end: int, replacement: str) -> None:
        self.edits.append((self._position(start), self._position(end), replacement))

    def _begin_swallowing(self, marker: Match) -> None:
        action = self._action(marker)
        self._done = marker.start
        if action is Action.BLOCK:
            self._note(marker, marker.end, action)
            self.blocked = marker.entity
            return
        self._swallowed = _Swallowed(marker, action, self._turn.digest(), self._position(marker.start))
        self._swallow_until(marker.end)

    def _swallow_until(self, end: int) -> None:
        swallowed = self._swallowed
        assert swallowed is not None
        swallowed.digest.update(self._text[self._done : end].encode("utf-8", "replace"))
        self._done = end
        # From where it was covered so far, not from the first new character: invisible ones lie between.
        position = self._position(end)
        if position > swallowed.covered:
            self.edits.append((swallowed.covered, position, ""))
            swallowed.covered = position

    def _swallow(self, *, final: bool) -> None:
        """Swallow what belongs to the value; when it has ended, put its replacement there."""
        swallowed, text = self._swallowed, self._text
        assert swallowed is not None
        assert swallowed.rest is not None
        closed = None
        if swallowed.closing is not None:
            # From a little before: its closing may have come in two parts.
            closed = swallowed.closing.search(text, max(swallowed.start, self._done - CONTEXT_CHARS))
        found = closed or swallowed.rest.match(text, self._done)
        end = max(found.end() if found else 0, self._done)
        self._swallow_until(end)
        if closed is not None or end < len(text) or final:
            self._swallowed = None
            if self.findings is not None:
                self.findings.append(Finding(swallowed.first, swallowed.covered, swallowed.entity, swallowed.action))
            replacement = self._turn.replacement(swallowed.entity, swallowed.action, swallowed.digest, None)
            self.edits.append((swallowed.covered, swallowed.covered, replacement))

    def _settle(self) -> None:
        """Treat as found what is open at the end and more than the beginning of a word."""
        matcher, text, done = self._matcher, self._text, self._done
        marker = matcher.unfinished(text, done)
        whole = matcher.matches(text, done, len(text), len(text), matcher.triggered(text, done))
        if whole and (marker is None or whole[-1].start < marker.start):
            last = whole.pop()
            open_end = last.end if marker is None else max(last.end, marker.end)
            marker = Match(last.start, open_end, last.entity, last.priority, matcher.rest_of(last.entity))
        if marker is None:
            return
        start = marker.start
        self._decide([each for each in whole if each.end <= start], start, final=True)
        if self.blocked is None:
            self._begin_swallowing(marker)

    def _forget(self) -> None:
        """Cut the window back."""
        cut = self._done - CONTEXT_CHARS
        self._text = self._text[cut:]
        self._done -= cut
        if self._swallowed is not None:
            self._swallowed.start -= cut
        if self._offsets is None:
            self._origin += cut
        else:
            del self._offsets[:cut]


class JsonPump(TextPump):
    """The source of one JSON value, such as a tool call's arguments: what its strings say is searched.

    Replacements leave it JSON: they stand inside one string, or as a string of their own for a number.
    """

    __slots__ = ("_kinds", "_source")

    def __init__(self, matcher: Matcher, turn: Turn) -> None:
        super().__init__(matcher, turn)
        self._offsets = []
        self._kinds = bytearray()
        self._source = JsonSource()

    def _append(self, text: str) -> None:
        assert self._offsets is not None
        decoded, offsets, kinds = self._source.feed(text)
        folded, moved = normal_form(decoded)
        if moved is None:
            self._offsets.extend(offsets)
            self._kinds.extend(kinds)
        else:
            self._offsets.extend(offsets[each] for each in moved)
            self._kinds.extend(kinds[each] for each in moved)
        self._text += folded
        # Half an escape waits with the character it belongs to.
        self._total = self._source.decoded

    def _replace(self, start: int, end: int, replacement: str) -> None:
        """Inside strings character by character; a number as a whole."""
        kinds = self._kinds
        at = start
        while at < end:
            kind = kinds[at]
            stop = at
            while stop < end and kinds[stop] == kind:
                stop += 1
            if kind == INSIDE:
                super()._replace(at, stop, replacement)
                replacement = ""
            elif self._text[at:stop].strip(' \t\r\n:,[]{}"'):
                self._replace_number(at, stop, replacement or "*")
                replacement = ""
            at = stop

    def _replace_number(self, start: int, end: int, replacement: str) -> None:
        while start and self._text[start - 1] in "0123456789+-.eE":
            start -= 1
        found = _NUMBER.match(self._text, end)
        end = found.end() if found else end
        super()._replace(start, end, f'"{replacement}"')
        self._done = max(self._done, end)

    def _forget(self) -> None:
        del self._kinds[: self._done - CONTEXT_CHARS]
        super()._forget()


def _canonical(value: str) -> str:
    """The same for one value in different spellings: capitals, and the spaces and dashes of numbers."""
    folded = value.casefold()
    return folded if "@" in folded else _SEPARATORS.sub("", folded)
