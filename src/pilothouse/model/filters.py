"""What a filter of the fleet file means: which entities are looked for, and what is done with each."""

import enum
from collections.abc import Mapping

import msgspec


class Action(enum.StrEnum):
    """What is done with a match. From the least strict to the strictest."""

    MONITOR = "monitor"
    """Count it; change and delay nothing."""
    MASK = "mask"
    """Stars for all but the last four letters and digits."""
    HASH = "hash"
    """A keyed digest: equal values stay equal, and cannot be found by trying them all."""
    REDACT = "redact"
    """A placeholder that names the kind, such as `[EMAIL_1]`, the same for the same value in one turn."""
    BLOCK = "block"
    """End the answer, or refuse the request."""

    @property
    def strictness(self) -> int:
        """A higher number is stricter."""
        return _STRICTNESS[self]


_STRICTNESS = {action: number for number, action in enumerate(Action)}


class Severity(enum.StrEnum):
    """How bad a phrase of a safety set is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class PatternSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An entity of the operator's own, as a regular expression (RE2's syntax, no references or look-around).

    Attributes:
        name: The entity's name, in placeholders and counts.
        pattern: The expression.
        max_chars: The longest match; text is held back at most so long for it.
        ignore_case: Whether small and capital letters are the same.
        severity: Set for an entity of a safety set.
    """

    name: str
    pattern: str
    max_chars: int = 256
    ignore_case: bool = False
    severity: Severity | None = None


class PhrasesSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An entity of the operator's own, as a list of phrases. Case and the width of spaces make no difference."""

    name: str
    phrases: tuple[str, ...]
    severity: Severity | None = None


class FilterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One filter.

    Attributes:
        name: Its name in the fleet file.
        models, tenants: To whom it applies, `None` for all.
        input, output: What to do with each entity in requests and in answers; an entity not named is not looked for.
        phone_regions: ISO 3166 countries whose national phone formats are known; `+` numbers always are.
        id_countries: ISO 3166 countries whose national identity numbers are looked for.
        patterns, phrases: Entities of the operator's own.
        fail_open: Whether text goes on unfiltered when a detector fails.
        stall_s: Seconds without news from the engine after which an open match is treated as found.
        hash_key: The key of `hash`, a secret.
    """

    name: str
    models: tuple[str, ...] | None = None
    tenants: tuple[str, ...] | None = None
    input: Mapping[str, Action] = {}
    output: Mapping[str, Action] = {}
    phone_regions: tuple[str, ...] = ()
    id_countries: tuple[str, ...] = ()
    patterns: tuple[PatternSpec, ...] = ()
    phrases: tuple[PhrasesSpec, ...] = ()
    fail_open: bool = False
    stall_s: float = 2.0
    hash_key: str | None = None

    def __repr__(self) -> str:
        return f"FilterSpec({self.name!r})"  # never the key
