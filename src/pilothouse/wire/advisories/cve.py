"""CVE records, version 5: https://github.com/CVEProject/cve-schema.

Read is what the numbering authority says, and the scores and versions that authorised publishers (ADP) add: records of
CERT/CC have their scores from CISA.
"""

from collections.abc import Iterable
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


class _Source(msgspec.Struct):
    advisory: str = ""


class _Container(msgspec.Struct):
    title: str = ""
    descriptions: list[_Text] = []
    source: _Source | None = None
    affected: list[_Affected] = []
    metrics: list[dict[str, Any]] = []


class _Containers(msgspec.Struct):
    cna: _Container
    adp: list[_Container] = []


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
    all_said = (said, *cve.containers.adp)
    modified = about.date_updated or about.date_published or ""
    return OsvRecord(
        id=about.cve_id,
        modified=modified,
        published=about.date_published,
        withdrawn=modified if about.state == "REJECTED" else None,
        aliases=(said.source.advisory,) if said.source and said.source.advisory.startswith("GHSA-") else (),
        summary=next((each for each in _titles(said) if each and each != about.cve_id), ""),
        affected=tuple(_affected(each) for container in all_said for each in container.affected),
        database_specific=_severity(metric for container in all_said for metric in container.metrics),
    )


def _titles(said: _Container) -> list[str]:
    return [said.title, *(each.value for each in said.descriptions)]


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


def _severity(metrics: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The worst of all scores."""
    found = [metric.get(name) for metric in metrics for name in ("cvssV4_0", "cvssV3_1", "cvssV3_0")]
    scores = [
        each["baseScore"] for each in found if isinstance(each, dict) and isinstance(each.get("baseScore"), int | float)
    ]
    return {"score": max(scores)} if scores else {}
