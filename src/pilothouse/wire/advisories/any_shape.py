"""A file of advisories of whatever shape, as OSV records."""

from typing import Any

import msgspec

from pilothouse.policy.advisories.records import OsvRecord, decode_record
from pilothouse.wire.advisories import csaf, cve, github


def records_in(content: bytes) -> list[OsvRecord]:
    """The records of a JSON file: OSV (one, a list, or `vulns`), GitHub's REST form, CVE version 5, or CSAF 2.0.

    Raises:
        ValueError: it is none of these, or a part of it is not as it should be.
    """
    try:
        return _records(msgspec.json.decode(content))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _records(tree: Any) -> list[OsvRecord]:
    if isinstance(tree, list):
        return [record for each in tree for record in _records(each)]
    if not isinstance(tree, dict):
        raise ValueError("not a record")
    if "vulns" in tree:
        return _records(tree["vulns"])
    if "cveMetadata" in tree:
        return _from("cve", [cve.record_of(tree)])
    if "ghsa_id" in tree:
        return _from("github", [github.record_of(tree)])
    if "document" in tree:
        return _from("csaf", csaf.records_of(tree))
    return _from("osv", [decode_record(tree)])


def _from(source: str, records: list[OsvRecord]) -> list[OsvRecord]:
    return [msgspec.structs.replace(each, source=source) for each in records]
