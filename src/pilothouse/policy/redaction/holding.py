"""How much of a text may still be the beginning of a match, and so must wait.

Values are *runs* (characters without a break, as in an address), *chains* of groups with digits (as in a card number),
and a few forms of their own. What the end of the text looks like is one regular expression without backtracking.
"""

import re
from collections.abc import Collection

_RUN = r"A-Za-z0-9._%+'@:\-"
_GROUP = rf"(?:[A-Za-z._%+'@:\-]*+[0-9][{_RUN}]*+|[A-Z]{{1,4}}+(?![{_RUN}]))"
_GLUE = r"(?: ?[()/\-] ?| )"
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"

SHAPES: dict[str, str] = {
    "run": rf"(?<![{_RUN}])[{_RUN}]++",
    "chain": (
        rf"(?<![{_RUN}])\(?(?:(?:{_GROUP}{_GLUE}{{1,2}}+)++\(?(?:[A-Z]{{0,4}}+(?:[0-9][{_RUN}]*+)?)"
        rf"|\(|{_GROUP}|[+A-Za-z]{{1,16}}+(?![{_RUN}]))"
    ),
    "date": (
        rf"(?<![{_RUN}])(?:{_DAY} (?:o|of|of )?(?:[A-Z][a-z]{{0,8}}(?:[.,]{{0,2}} ?\d{{0,4}})?)?"
        rf"|(?:{_MONTHS})[a-z]{{0,6}}\.?(?: (?:\d{{1,2}}(?:s|n|r|t|st|nd|rd|th)?(?:,? ?\d{{0,4}})?)?)?)"
    ),
    "url": r"(?<![A-Za-z0-9+.\-])[A-Za-z][A-Za-z0-9+.\-]{0,20}:(?:/(?:/[^\s/?#\"<>\\]{0,400}+)?)?",
    "pem": r"-----BEGIN [A-Z0-9 ]{0,60}-{0,5}",
}
"""What an unfinished value looks like at the end of a text."""


_EDGE = re.compile(r"\(\?<!\[[^\]]*\]\)")


def tail_pattern(shapes: Collection[str]) -> re.Pattern[str]:
    """Finds where the earliest unfinished value of these `shapes` begins; at the very end if there is none."""
    forms = [SHAPES[shape] for shape in sorted(shapes) if shape in SHAPES]
    return re.compile("(?:" + "|".join([*forms, ""]) + r")\Z")


def rest_pattern(shapes: Collection[str]) -> re.Pattern[str]:
    """Matches a text that is one unfinished value of these `shapes`, whatever stands before it."""
    forms = [_EDGE.sub("", SHAPES[shape]) for shape in sorted(shapes) if shape in SHAPES]
    return re.compile("(?:" + "|".join([*forms, "(?!)"]) + r")\Z")


RUN_TO_END = re.compile(rf"[{_RUN}]*+\Z")
"""Matches where nothing but a run follows."""

_PLAIN_WORD = rf"(?!{_MONTHS})[A-Z]?[a-z']{{1,24}}+(?![a-z'])"

PLAIN = re.compile(rf"((?:(?:{_PLAIN_WORD})?(?:[ ,;!?\n]|\.(?=[ \n])))*+)[A-Za-z']{{0,24}}+\.?\Z")
"""Matches words and the marks between them: nothing can begin or be in group 1, whatever the built-in detectors.

Every value has a digit, an @, a dash, an underscore or more than one capital; a date's month is left out too.
"""

AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{0,40}\Z")
"""An unfinished AWS secret; looked for only where its words are near, since every path looks like one."""


def is_strong(text: str) -> bool:
    """Whether there is a sign of a value that may be longer than most: an address, a URL, a token, a key."""
    return "@" in text or ":/" in text or "eyJ" in text or "BEGIN " in text or "secret" in text.casefold()


RUN = re.compile(rf"[{_RUN}]*+")
"""A run, to its end."""
