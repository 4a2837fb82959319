"""`pilothouse explain`: rows of the error table, for people."""

import difflib

from pilothouse.cli.exits import Exit
from pilothouse.cli.output import say
from pilothouse.model.errors import ERRORS, ErrorSpec

_NEAR_CODES = 3


def explain(code: str | None = None, /) -> int:
    """Say what an error code means and what to do about it.

    $ pilothouse explain port_in_use
    $ pilothouse explain

    Without a code it lists all of them.

    Args:
        code: The code from an error message or from an API error's `code` field.
    """
    if code is None:
        width = max(len(each) for each in ERRORS)
        print("\n".join(f"{row.code:<{width}}  {row.title}" for row in ERRORS.values()))
        return Exit.OK
    row = ERRORS.get(code)
    if row is None:
        say(f"error: there is no error code {code!r}")
        near = near_codes(code)
        say(f"hint: did you mean {', '.join(near)}?" if near else "hint: `pilothouse explain` lists all codes")
        return Exit.ERROR
    print(text_of(row))
    return Exit.OK


def near_codes(code: str) -> list[str]:
    """Codes that `code` may have been meant to be: spelled alike, or with a word in common."""
    wanted = code.lower().replace("-", "_").replace(" ", "_")
    spelled_alike = difflib.get_close_matches(wanted, ERRORS, n=_NEAR_CODES, cutoff=0.6)
    words = set(wanted.split("_"))
    with_a_word = sorted((each for each in ERRORS if words & set(each.split("_"))), key=lambda each: each)
    return list(dict.fromkeys([*spelled_alike, *with_a_word]))[:_NEAR_CODES]


def text_of(row: ErrorSpec) -> str:
    """The whole row as text."""
    lines = [f"{row.code}: {row.title}", "", f"Cause:  {row.cause}", f"Fix:    {row.fix}"]
    if row.status is not None:
        lines.append(f"HTTP:   {row.status}")
    after = f", after about {row.retry_after_s} s" if row.retry_after_s else ""
    lines.append(f"Retry:  {'may help' + after if row.retryable else 'will not help without a change'}")
    lines.append(f"More:   {row.anchor}")
    return "\n".join(lines)
