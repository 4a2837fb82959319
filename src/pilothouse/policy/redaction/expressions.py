"""Operators' own regular expressions: read, checked, and turned into what may still become a match.

They are read into a tree once, and written again from it, so that both engines get the same. References and look-around
have no place in an automaton; they are refused.
"""

import re
from typing import Any

_parser: Any = vars(re)["_parser"]  # the only parser of expressions in the standard library; no stubs agree on it
_constants: Any = vars(re)["_constants"]

MAX_REPEAT = 1000
"""As RE2: more would make the automaton as large."""

_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_BOUNDARIES = {"AT_BOUNDARY": r"\b", "AT_NON_BOUNDARY": r"\B"}


class Expression:
    """An expression in the form both engines read.

    Attributes:
        full: Matches what the expression matches.
        beginning: Matches everything that may be the beginning of a match, whole matches too.
        longest: The longest match in characters, `None` without a bound.
    """

    __slots__ = ("beginning", "full", "longest")

    def __init__(self, text: str) -> None:
        """Read `text`.

        Raises:
            ValueError: it is not an expression, or not one that can be used on streams; the message says why.
        """
        try:
            tree = _parser.parse(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"not a regular expression: {error}") from error
        if tree.state.flags & ~(re.IGNORECASE | re.UNICODE):
            raise ValueError("flags inside the expression are not supported; ignore_case is a setting of its own")
        shortest, longest = tree.getwidth()
        if shortest == 0:
            raise ValueError("it matches the empty text, so it would be found everywhere")
        items = list(tree)
        if _begins_anywhere(items):
            raise ValueError(
                "it begins with any text at all, so everything would wait for it: begin with what it needs"
            )
        self.full = _written(items)
        self.beginning = _beginning(items, first=True)
        self.longest = int(longest) if longest < MAX_REPEAT * MAX_REPEAT else None


def _begins_anywhere(items: list[Any]) -> bool:
    operator, argument = items[0]
    name = str(operator)
    if name == "SUBPATTERN":
        return _begins_anywhere(list(argument[3])) if argument[3] else False
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        return any(str(each[0]) == "ANY" for each in argument[2])
    return False


def _written(items: Any) -> str:
    return "".join(_write(item) for item in items)


def _write(item: Any) -> str:
    operator, argument = item
    name = str(operator)
    if name == "LITERAL":
        return _character(argument)
    if name == "NOT_LITERAL":
        return f"[^{_character(argument)}]"
    if name == "ANY":
        return "."
    if name == "IN":
        return _class(argument)
    if name == "BRANCH":
        return "(?:" + "|".join(_written(branch) for branch in argument[1]) + ")"
    if name == "SUBPATTERN":
        if argument[1] or argument[2]:
            raise ValueError("flags inside the expression are not supported; ignore_case is a setting of its own")
        return f"(?:{_written(argument[3])})"
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, inner = argument
        return f"(?:{_written(inner)}){_repeat(low, high)}" if high else ""
    if name == "AT":
        if str(argument) in _BOUNDARIES:
            return _BOUNDARIES[str(argument)]
        raise ValueError("^, $, \\A and \\Z have no meaning in a stream; \\b is the edge of a word")
    raise ValueError(_refusal(name))


def _refusal(name: str) -> str:
    if name.startswith("GROUPREF"):
        return "references to groups need backtracking, which can take for ever; write the parts out"
    if name.startswith("ASSERT"):
        return "look-ahead and look-behind need backtracking, which can take for ever; \\b is the edge of a word"
    return "atomic groups and possessive repeats are not supported"


def _repeat(low: int, high: Any) -> str:
    unbounded = high == _constants.MAXREPEAT
    if low > MAX_REPEAT or (not unbounded and high > MAX_REPEAT):
        raise ValueError(f"a repeat of more than {MAX_REPEAT} is too large")
    return f"{{{low},}}" if unbounded else f"{{{low},{int(high)}}}"


def _character(code: int) -> str:
    character = chr(code)
    if character.isascii() and not character.isalnum():
        return f"\\x{code:02x}"
    return character


def _class(members: Any) -> str:
    text = ""
    for operator, argument in members:
        name = str(operator)
        if name == "NEGATE":
            text += "^"
        elif name == "LITERAL":
            text += _character(argument)
        elif name == "RANGE":
            text += f"{_character(argument[0])}-{_character(argument[1])}"
        else:
            text += _CATEGORIES[str(argument)]
    return f"[{text}]"


def _beginning(items: list[Any], *, first: bool = False) -> str:
    """What may be the beginning of a sequence. Edges of words are dropped but for the first: what follows decides."""
    if not items:
        return ""
    head, *rest = items
    if str(head[0]) == "AT":
        return (_write(head) if first else "") + _beginning(rest)
    following = _beginning(rest)
    whole = f"{_without_edges([head])}(?:{following})?" if following else _without_edges([head])
    part = _part(head)
    return f"(?:{part}|{whole})" if part else whole


def _part(item: Any) -> str:
    """What may be the beginning of one item that is longer than a character."""
    operator, argument = item
    name = str(operator)
    if name == "BRANCH":
        return "(?:" + "|".join(_beginning(list(branch)) for branch in argument[1]) + ")"
    if name == "SUBPATTERN":
        return _beginning(list(argument[3]))
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        _, high, inner = argument
        if high == 0:
            return ""
        if high == 1:
            return _beginning(list(inner))
        more = high if high == _constants.MAXREPEAT else int(high) - 1
        return f"(?:{_without_edges(list(inner))}){_repeat(0, more)}{_beginning(list(inner))}"
    return ""


def _without_edges(items: list[Any]) -> str:
    return "".join(_write_without_edges(item) for item in items)


def _write_without_edges(item: Any) -> str:
    operator, argument = item
    name = str(operator)
    if name == "AT":
        return ""
    if name == "SUBPATTERN":
        return f"(?:{_without_edges(list(argument[3]))})"
    if name == "BRANCH":
        return "(?:" + "|".join(_without_edges(list(branch)) for branch in argument[1]) + ")"
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        low, high, inner = argument
        return f"(?:{_without_edges(list(inner))}){_repeat(low, high)}" if high else ""
    return _write(item)
