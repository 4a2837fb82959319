"""An advisory record in OSV's shape, as far as we read it: https://ossf.github.io/osv-schema/."""

from typing import Any

import msgspec


class OsvEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One bound. Exactly one field is set in a well-formed record."""

    introduced: str | None = None
    fixed: str | None = None
    last_affected: str | None = None
    limit: str | None = None


class OsvRange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bounds of one kind. Ranges of kind GIT are of commits, and say nothing of versions."""

    type: str
    events: tuple[OsvEvent, ...] = ()


class OsvPackage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A package, by its ecosystem's name and perhaps by a package URL."""

    name: str = ""
    ecosystem: str = ""
    purl: str | None = None


class OsvSeverity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A score; for the CVSS types a vector."""

    type: str
    score: str


class OsvAffected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is affected of one package.

    `database_specific.default_status` is ours: `unknown` where the source speaks of the listed versions alone, as
    a CVE record without a `defaultStatus` does.
    """

    package: OsvPackage = OsvPackage()
    ranges: tuple[OsvRange, ...] = ()
    versions: tuple[str, ...] = ()
    severity: tuple[OsvSeverity, ...] = ()
    database_specific: dict[str, Any] = {}


class OsvReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page about it."""

    url: str
    type: str = "WEB"


class OsvRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of one source.

    `database_specific.severity` is a level in words, as GitHub's database has it. `source` is ours: whose record it is,
    since two databases may each have one under the same id.
    """

    id: str
    modified: str
    schema_version: str = "1.0.0"
    published: str | None = None
    withdrawn: str | None = None
    aliases: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    summary: str = ""
    details: str = ""
    severity: tuple[OsvSeverity, ...] = ()
    affected: tuple[OsvAffected, ...] = ()
    references: tuple[OsvReference, ...] = ()
    database_specific: dict[str, Any] = {}
    source: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Records that were gathered at one time.

    Attributes:
        date: The day until which the sources had been read, `YYYY-MM-DD`.
        records: The records.
        unread: What could not be read, a line each; a deployment cannot be called unaffected by those.
    """

    date: str
    records: tuple[OsvRecord, ...]
    unread: tuple[str, ...] = ()


def decode_record(data: bytes | dict[str, Any]) -> OsvRecord:
    """A record from JSON, or from a tree of it. `null` where a list or mapping belongs counts as left out.

    Raises:
        ValueError: it is not an OSV record.
    """
    try:
        tree = msgspec.json.decode(data) if isinstance(data, bytes) else data
        return msgspec.convert(_without_null(tree), OsvRecord)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not an OSV record: {error}") from error


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_null(each) for each in value]
    return value
