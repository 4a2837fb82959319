"""Where words go: data to standard output, messages to standard error. Colours follow NO_COLOR and the terminal."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pilothouse.model.errors import PilothouseError

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 1000
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class CommandError(Exception):
    """An expected failure without a code of ours: an engine's own error, or a question that needs a better answer."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def data_console() -> "Console":
    """For data. Where the reader is no terminal, tables are as wide as they need to be."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def message_console() -> "Console":
    """For messages, progress and everything a script should not read."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(message: str) -> None:
    """One plain message line."""
    with contextlib.suppress(OSError):  # a terminal that was closed
        print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def working(doing: str) -> Iterator[Callable[[str], None]]:
    """Show what is being done: a line that moves in a terminal, a line for each thing elsewhere."""
    console = message_console()
    if not console.is_terminal:
        say(doing)
        yield say
        return
    with console.status(doing) as shown:
        yield shown.update


def print_error(error: PilothouseError | CommandError) -> None:
    """What happened, what to do about it, and where there is more."""
    from rich.text import Text

    console = message_console()
    console.print(Text("error:", style="bold red"), Text(printable(error.message)))
    if error.hint:
        console.print(Text("hint:", style="bold"), Text(error.hint))
    if isinstance(error, PilothouseError):
        console.print(Text(f"more: pilothouse explain {error.code}", style="dim"))


def json_text(value: object) -> str:
    """`value` as indented JSON, for people and for `jq` alike."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def printable(text: str) -> str:
    """Without control characters but newline and tab: what a model or an engine says must not steer a terminal."""
    return _CONTROL.sub("", text)
