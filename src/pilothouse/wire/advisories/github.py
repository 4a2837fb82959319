"""Advisories of GitHub's REST API: https://docs.github.com/rest/security-advisories/global-advisories."""

import msgspec

from pilothouse.policy.advisories.records import OsvPackage, OsvRecord
from pilothouse.wire.advisories.comparators import affected_of


class _Package(msgspec.Struct):
    ecosystem: str
    name: str


class _Patched(msgspec.Struct):
    identifier: str


class _Vulnerability(msgspec.Struct):
    package: _Package
    vulnerable_version_range: str | None = None
    first_patched_version: str | _Patched | None = None


class _Advisory(msgspec.Struct):
    ghsa_id: str
    cve_id: str | None = None
    summary: str | None = None
    severity: str | None = None
    published_at: str | None = None
    updated_at: str | None = None
    withdrawn_at: str | None = None
    vulnerabilities: list[_Vulnerability] = []


def record_of(tree: object) -> OsvRecord:
    """The advisory as an OSV record.

    Raises:
        ValueError: it has another shape.
    """
    advisory = msgspec.convert(tree, _Advisory)
    return OsvRecord(
        id=advisory.ghsa_id,
        modified=advisory.updated_at or advisory.published_at or "",
        published=advisory.published_at,
        withdrawn=advisory.withdrawn_at,
        aliases=(advisory.cve_id,) if advisory.cve_id else (),
        summary=advisory.summary or "",
        affected=tuple(
            affected_of(
                OsvPackage(ecosystem=each.package.ecosystem, name=each.package.name),
                [each.vulnerable_version_range] if each.vulnerable_version_range else [],
                is_complete=True,
                fixed=_patched(each.first_patched_version),
            )
            for each in advisory.vulnerabilities
        ),
        database_specific={"severity": advisory.severity} if advisory.severity else {},
    )


def _patched(value: str | _Patched | None) -> str | None:
    return value.identifier if isinstance(value, _Patched) else value
