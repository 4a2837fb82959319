"""What the exit codes mean; `docs/reference/cli.md` repeats this table."""

import enum
from typing import Self


class Exit(enum.IntEnum):
    """The exit codes of every command. `word` is for the foot of a help page, `meaning` for the reference."""

    word: str
    meaning: str

    def __new__(cls, value: int, word: str, meaning: str) -> Self:
        """A member is its number, with two texts."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.word = word
        member.meaning = meaning
        return member

    OK = 0, "ok", "The command did what it says. For `up`: the fleet was stopped on request."
    ERROR = 1, "error", "It could not; standard error says why, with a code that `pilothouse explain` knows."
    USAGE = 2, "usage", "The command line was not understood; nothing was done."
    INTERRUPTED = 130, "interrupted", "Ctrl-C ended it before it was done."
    BROKEN_PIPE = 141, "output closed", "The reader of standard output went away, as `head` does."
