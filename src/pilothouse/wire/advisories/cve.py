"""CVE records, version 5: https://github.com/CVEProject/cve-schema. What the numbering authority says is read."""

from typing import Any

import msgspec

from pilothouse.policy.advisories.packages import BY_PRODUCT
from pilothouse.policy.advisories.records import OsvAffected, OsvEvent, OsvPackage, OsvRange, OsvRecord
from pilothouse.wire.advisories.comparators import affected_of

_FROM_THE_FIRST = frozenset({"", "0", "*", "n/a", "unspecified"})


class _Version(msgspec.Struct, rename="camel"):
    version: str = ""
    status: str = "unknown"
    less_than: str | None = None
    less_than_or_equal: str | None = None


class _Affected(msgspec.Struct, rename="camel"):
    product: str = ""
    package_name: str = ""
    package_url: str | None = msgspec.field(default=None, name="packageURL")
    default_status: str = "unknown"
    versions: list[_Version] = []


class _Text(msgspec.Struct):
    value: str = ""


class _Authority(msgspec.Struct):
    title: str = ""
    descriptions: list[_Text] = []
    affected: list[_Affected] = []
    metrics: list[dict[str, Any]] = []


class _Containers(msgspec.Struct):
    cna: _Authority


class _Metadata(msgspec.Struct, rename="camel"):
    cve_id: str
    state: str = "PUBLISHED"
    date_published: str | None = None
    date_updated: str | None = None


class _Cve(msgspec.Struct, rename="camel"):
    cve_metadata: _Metadata
    containers: _Containers


def record_of(tree: object) -> OsvRecord:
    """The record as an OSV record; a rejected one as withdrawn.

    Raises:
        ValueError: it has another shape.
    """
    cve = msgspec.convert(tree, _Cve)
    about, said = cve.cve_metadata, cve.containers.cna
    modified = about.date_updated or about.date_published or ""
    return OsvRecord(
        id=about.cve_id,
        modified=modified,
        published=about.date_published,
        withdrawn=modified if about.state == "REJECTED" else None,
        summary=said.title or next((each.value for each in said.descriptions), ""),
        affected=tuple(_affected(each) for each in said.affected),
        database_specific=_severity(said.metrics),
    )


def _affected(entry: _Affected) -> OsvAffected:
    package = OsvPackage(purl=entry.package_url, ecosystem=BY_PRODUCT, name=entry.package_name or entry.product)
    bounded, texts = [], []
    for each in entry.versions:
        if each.status != "affected":
            continue
        if each.less_than is None and each.less_than_or_equal is None:
            texts.append(each.version)
            continue
        introduced = "0" if each.version.lower() in _FROM_THE_FIRST else each.version
        events = [OsvEvent(introduced=introduced)]
        # An upper bound of "*" means every later version.
        if each.less_than is not None and each.less_than != "*":
            events.append(OsvEvent(fixed=each.less_than))
        elif each.less_than_or_equal is not None and each.less_than_or_equal != "*":
            events.append(OsvEvent(last_affected=each.less_than_or_equal))
        bounded.append(OsvRange(type="ECOSYSTEM", events=tuple(events)))
    if entry.default_status == "affected":
        bounded.append(_all_but_unaffected(entry.versions))
    found = affected_of(package, texts, is_complete=entry.default_status == "unaffected")
    specific = {} if bounded else found.database_specific
    return msgspec.structs.replace(found, ranges=(*found.ranges, *bounded), database_specific=specific)


def _all_but_unaffected(versions: list[_Version]) -> OsvRange:
    """Everything, up to the first version from which on all are said to be unaffected."""
    from_then_on = [
        OsvEvent(fixed=each.version)
        for each in versions
        if each.status == "unaffected" and "*" in (each.less_than, each.less_than_or_equal)
    ]
    return OsvRange(type="ECOSYSTEM", events=(OsvEvent(introduced="0"), *from_then_on))


def _severity(metrics: list[dict[str, Any]]) -> dict[str, Any]:
    for metric in metrics:
        for name in ("cvssV4_0", "cvssV3_1", "cvssV3_0"):
            found = metric.get(name)
            if isinstance(found, dict) and isinstance(found.get("baseSeverity"), str):
                return {"severity": found["baseSeverity"], "score": found.get("baseScore")}
    return {}
