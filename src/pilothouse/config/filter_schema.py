"""The shape of `filters:` in a fleet file."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from pilothouse.config.secret_references import PATTERN, check_reference
from pilothouse.config.section import Section
from pilothouse.config.short_form import WithShortForm
from pilothouse.model.filters import FilterSpec, PatternSpec

_DEFAULT = FilterSpec(name="")
_MAX_CHARS = 4096
_DAY_S = 86_400.0

ActionText = Literal["monitor", "mask", "hash", "redact", "block"]
SeverityText = Literal["low", "medium", "high", "critical"]
CountryText = Annotated[str, Field(pattern="^[A-Z]{2}$")]


def _check_secret(text: str) -> str:
    try:
        check_reference(text)
    except ValueError as error:
        raise PydanticCustomError("rule", "{words}", {"words": str(error)}) from error
    return text


_SecretText = Annotated[str, AfterValidator(_check_secret), WithJsonSchema({"type": "string", "pattern": PATTERN})]


class PatternSection(WithShortForm):
    """A regular expression: the text, or a mapping that also says how long a match may be."""

    short_form: ClassVar[dict[str, Any]] = {"type": "string", "description": "The expression."}

    pattern: str = Field(
        description="The expression, in RE2's syntax: no references, no look-around, no ^ and $; `\\b` is the edge of "
        "a word.",
        examples=["EMP-[0-9]{6}"],
    )
    ignore_case: bool = Field(default=False, description="Whether small and capital letters are the same.")
    max_chars: int = Field(
        default=PatternSpec(name="", pattern="").max_chars,
        gt=0,
        le=_MAX_CHARS,
        description="The longest match. A match that is still open there is treated as found.",
    )

    @classmethod
    def widen(cls, text: str) -> dict[str, Any]:
        """The expression alone."""
        return {"pattern": text}


class PhrasesSection(WithShortForm):
    """Phrases: the path of a file with one on each line, or a mapping that has the phrases themselves."""

    short_form: ClassVar[dict[str, Any]] = {"type": "string", "description": "The file's path."}

    file: str | None = Field(
        default=None,
        min_length=1,
        description="A UTF-8 file with a phrase on each line, relative to the fleet file; empty lines and lines that "
        "begin with `#` are left out. 100,000 phrases are fine.",
    )
    entries: list[str] = Field(default=[], description="Phrases.")

    @classmethod
    def widen(cls, text: str) -> dict[str, Any]:
        """The file alone."""
        return {"file": text}


class SafetySection(Section):
    """A set of unsafe phrases and expressions. Its severity decides what is done where no action names the set."""

    severity: SeverityText = Field(
        description="low or medium: counted; high or critical: blocked; unless an action names the set."
    )
    phrases: PhrasesSection | None = Field(default=None, description="Phrases.")
    patterns: list[PatternSection] = Field(default=[], description="Regular expressions.")


class FilterSection(Section):
    """A filter: to whom it applies, what it looks for, and what is done with it."""

    models: list[str] | None = Field(default=None, min_length=1, description="The models it applies to. Left out: all.")
    tenants: list[str] | None = Field(
        default=None, min_length=1, description="The tenants it applies to. Left out: all."
    )
    input: dict[str, ActionText] = Field(
        default={},
        description="Actions in requests, by entity or group (`all`, `pii`, `secrets`). An entity outranks its "
        "group. `monitor` counts, `mask` leaves four characters, `hash` puts a keyed digest, `redact` puts a "
        "placeholder such as [EMAIL_1], `block` refuses.",
    )
    output: dict[str, ActionText] = Field(
        default={}, description="Actions in answers. `block` ends the answer with finish_reason `content_filter`."
    )
    phone_regions: list[CountryText] = Field(
        default=[], description="Countries (ISO 3166) whose national phone formats are known; `+` numbers always are."
    )
    id_countries: list[CountryText] = Field(
        default=[], description="Countries (ISO 3166) whose national identity numbers are looked for."
    )
    patterns: dict[str, PatternSection] = Field(
        default={}, description="Entities of your own, as regular expressions, by name."
    )
    phrases: dict[str, PhrasesSection] = Field(default={}, description="Entities of your own, as phrases, by name.")
    safety: dict[str, SafetySection] = Field(default={}, description="Sets of unsafe phrases, by name.")
    on_error: Literal["closed", "open"] = Field(
        default="closed",
        description="When a detector fails: `closed` ends the turn with an error, `open` lets it through unfiltered.",
    )
    stall_s: float = Field(
        default=_DEFAULT.stall_s,
        gt=0,
        le=_DAY_S,
        allow_inf_nan=False,
        description="Seconds without news from the engine after which a match that is still open is treated as found.",
    )
    hash_key: _SecretText | None = Field(
        default=None, description="The key of `hash`, as a reference: `${env:NAME}` or `${file:PATH}`."
    )
