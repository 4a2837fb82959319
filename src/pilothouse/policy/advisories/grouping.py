"""Records of one flaw, whatever database they come from, as one advisory."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pilothouse.model.posture import Severity
from pilothouse.policy.advisories.features import OverlayEntry, Predicate
from pilothouse.policy.advisories.records import OsvRecord
from pilothouse.policy.advisories.severity import severity_of, worst

_ORDER = ("CVE-", "GHSA-", "PYSEC-")


class Advisory(msgspec.Struct, frozen=True, kw_only=True):
    """One flaw.

    Attributes:
        ids: All its ids; the CVE first.
        records: The records that were united, none of them withdrawn.
        severity: The highest that a record gives.
        published: The earliest day that a record gives, `YYYY-MM-DD`; `None` if none does.
        when: What it needs to bite; `None`: nothing that we know of.
        why: The overlay's reasons, with the arguments and variables that tell.
    """

    ids: tuple[str, ...]
    records: tuple[OsvRecord, ...]
    severity: Severity
    published: str | None
    when: Predicate | None
    why: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id to call it by."""
        return self.ids[0]

    @property
    def summary(self) -> str:
        """What it is, from the first record that says."""
        return next((each.summary for each in self.records if each.summary), "")


def unite(records: Iterable[OsvRecord], overlay: Sequence[OverlayEntry] = ()) -> list[Advisory]:
    """Advisories by the closure of aliases, which are symmetric and transitive. Withdrawn records are left out.

    Of several records of one source with one id the one modified last counts; those of different sources all do, but
    for copies that are older than the withdrawal of what they copy.
    """
    newest: dict[tuple[str, str], OsvRecord] = {}
    for record in records:
        key = (record.id, record.source)
        known = newest.get(key)
        if known is None or known.modified < record.modified:
            newest[key] = record
    withdrawn = {each.id: each.modified for each in newest.values() if each.withdrawn is not None}
    standing = [
        each
        for each in newest.values()
        if each.withdrawn is None and each.modified >= withdrawn.get(each.id, each.modified)
    ]
    leaders = _Leaders()
    for record in standing:
        for alias in record.aliases:
            leaders.join(record.id, alias)
    grouped: dict[str, list[OsvRecord]] = {}
    for record in standing:
        grouped.setdefault(leaders.of(record.id), []).append(record)
    conditions: dict[str, list[OverlayEntry]] = {}
    for entry in overlay:
        for name in entry.ids:
            conditions.setdefault(name, []).append(entry)
    return [_advisory(each, conditions) for each in grouped.values()]


def _advisory(records: list[OsvRecord], conditions: Mapping[str, list[OverlayEntry]]) -> Advisory:
    ids = sorted({name for each in records for name in (each.id, *each.aliases)}, key=_rank)
    entries: list[OverlayEntry] = []
    for name in ids:
        entries += [each for each in conditions.get(name, ()) if each not in entries]
    published = [each.published[:10] for each in records if each.published]
    when = entries[0].when if len(entries) == 1 else Predicate(any=tuple(each.when for each in entries))
    return Advisory(
        ids=tuple(ids),
        records=tuple(records),
        severity=worst(map(severity_of, records)),
        published=min(published) if published else None,
        when=when if entries else None,
        why=tuple(map(str, entries)),
    )


def _rank(name: str) -> tuple[int, str]:
    return next((place for place, prefix in enumerate(_ORDER) if name.startswith(prefix)), len(_ORDER)), name


class _Leaders:
    """Union-find with path halving: https://en.wikipedia.org/wiki/Disjoint-set_data_structure."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def of(self, name: str) -> str:
        parent = self._parent
        while (above := parent.setdefault(name, name)) != name:
            parent[name] = parent[above]
            name = above
        return name

    def join(self, one: str, other: str) -> None:
        self._parent[self.of(one)] = self.of(other)
