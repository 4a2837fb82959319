"""Near names, for messages that say what was probably meant."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, `None` when none is like it."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return found[0] if found else None
