import json
from typing import Any

import pytest

from pilothouse.policy.advisories.packages import BY_PRODUCT, Package
from pilothouse.policy.advisories.ranges import Bounds, Coverage, read_entry, segments
from pilothouse.policy.advisories.records import OsvAffected, OsvRecord
from pilothouse.policy.advisories.versions import Grammar, VersionKey, parse_version
from pilothouse.wire.advisories.any_shape import records_in


def read(tree: Any) -> list[OsvRecord]:
    return records_in(json.dumps(tree).encode())


def coverage(affected: OsvAffected, version: str, grammar: Grammar = Grammar.PEP440) -> Coverage:
    package = Package(key="pypi/x", grammar=grammar)
    texts: dict[VersionKey, str] = {}
    entry = read_entry("one", affected, package, texts)
    bounds = Bounds(texts)
    at = bounds.position(parse_version(version, grammar))
    found = [each for each in segments([entry], bounds) if each.start <= at and (each.end is None or at < each.end)]
    return found[0].coverage if found else Coverage.CLEAR


OSV = {
    "id": "PYSEC-1",
    "modified": "2026-05-01T00:00:00Z",
    "aliases": ["CVE-1"],
    "affected": [
        {
            "package": {"name": "vllm", "ecosystem": "PyPI", "purl": None},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "0.8.5"}]}],
            "versions": None,
        }
    ],
    "something_new": {"of": "a later schema"},
}


@pytest.mark.parametrize("tree", [OSV, [OSV], {"vulns": [OSV]}, [{"vulns": [OSV]}]])
def test_osv_in_every_wrapping(tree: Any) -> None:
    (record,) = read(tree)
    assert (record.id, record.aliases, record.source) == ("PYSEC-1", ("CVE-1",), "osv")
    assert coverage(record.affected[0], "0.8.4") is Coverage.AFFECTED
    assert coverage(record.affected[0], "0.8.5") is Coverage.CLEAR


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"null", b'{"id": "X"}', b'{"id": 1, "modified": ""}', b"[" * 100_000]
)
def test_what_is_no_record_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        records_in(content)


# GitHub's REST form


def github(range_: str | None, patched: Any = None, **also: Any) -> OsvRecord:
    vulnerability = {
        "package": {"ecosystem": "pip", "name": "vllm"},
        "vulnerable_version_range": range_,
        "first_patched_version": patched,
    }
    (record,) = read({"ghsa_id": "GHSA-1", "cve_id": "CVE-1", "vulnerabilities": [vulnerability], **also})
    return record


def test_github_comparators_become_a_range() -> None:
    record = github(">= 0.6.5, < 0.8.5", severity="critical", published_at="2026-01-02T00:00:00Z")
    affected = record.affected[0]
    assert [coverage(affected, each) for each in ("0.6.4", "0.6.5", "0.8.4", "0.8.5")] == [
        Coverage.CLEAR, Coverage.AFFECTED, Coverage.AFFECTED, Coverage.CLEAR,
    ]  # fmt: skip
    assert record.aliases == ("CVE-1",)
    assert record.published == "2026-01-02T00:00:00Z"
    assert record.database_specific == {"severity": "critical"}
    assert record.source == "github"


@pytest.mark.parametrize("patched", ["0.8.6", {"identifier": "0.8.6"}])
def test_github_first_patched_version_ends_a_range_without_one(patched: Any) -> None:
    affected = github("<= 0.8.4", patched).affected[0]
    assert coverage(affected, "0.8.5") is Coverage.AFFECTED
    assert coverage(affected, "0.8.6") is Coverage.CLEAR


def test_github_last_affected_without_a_patch_leaves_what_is_above_open() -> None:
    affected = github("<= 0.8.4").affected[0]
    assert coverage(affected, "0.8.4") is Coverage.AFFECTED
    assert coverage(affected, "0.8.5") is Coverage.OPEN


@pytest.mark.parametrize("text", ["= 0.8.4", "== 0.8.4", "0.8.4"])
def test_github_single_version(text: str) -> None:
    affected = github(text).affected[0]
    assert coverage(affected, "0.8.4") is Coverage.AFFECTED
    assert coverage(affected, "0.8.5") is Coverage.CLEAR


@pytest.mark.parametrize("text", ["before the release of May", "~> 0.8, != 0.8.3", ">= x"])
def test_a_range_that_is_not_understood_is_unreadable_and_not_clear(text: str) -> None:
    assert coverage(github(text).affected[0], "0.8.4") in {Coverage.UNREADABLE, Coverage.AFFECTED}


def test_github_withdrawn() -> None:
    assert github("< 1", withdrawn_at="2026-02-01T00:00:00Z").withdrawn == "2026-02-01T00:00:00Z"


# CVE


def cve(versions: list[dict[str, str]], state: str = "PUBLISHED", **entry: Any) -> OsvRecord:
    (record,) = read(
        {
            "cveMetadata": {"cveId": "CVE-1", "state": state, "dateUpdated": "2026-03-01T00:00:00"},
            "containers": {
                "cna": {
                    "descriptions": [{"lang": "en", "value": "words"}],
                    "affected": [{"packageURL": "pkg:pypi/vllm", "versions": versions, **entry}],
                    "metrics": [{"other": {}}, {"cvssV3_1": {"baseScore": 9.8, "baseSeverity": "CRITICAL"}}],
                }
            },
        }
    )
    return record


def test_cve_less_than_is_a_fix() -> None:
    record = cve([{"version": "0.6.5", "status": "affected", "lessThan": "0.8.5", "versionType": "custom"}])
    affected = record.affected[0]
    assert affected.package.purl == "pkg:pypi/vllm"
    assert record.summary == "words"
    assert record.database_specific == {"score": 9.8}
    assert coverage(affected, "0.6.4") is Coverage.CLEAR
    assert coverage(affected, "0.8.4") is Coverage.AFFECTED
    assert coverage(affected, "0.8.5") is Coverage.CLEAR


def test_cve_less_than_or_equal_leaves_what_is_above_open() -> None:
    affected = cve([{"version": "0", "status": "affected", "lessThanOrEqual": "0.5.14"}]).affected[0]
    assert coverage(affected, "0.0.1") is Coverage.AFFECTED
    assert coverage(affected, "0.5.15") is Coverage.OPEN


@pytest.mark.parametrize("bound", ["lessThan", "lessThanOrEqual"])
def test_cve_star_has_no_end(bound: str) -> None:
    affected = cve([{"version": "0.5", "status": "affected", bound: "*"}]).affected[0]
    assert coverage(affected, "9") is Coverage.AFFECTED
    assert coverage(affected, "0.4") is Coverage.CLEAR


def test_cve_single_version_says_nothing_of_others() -> None:
    affected = cve([{"version": "0.5.10", "status": "affected"}]).affected[0]
    assert coverage(affected, "0.5.10") is Coverage.AFFECTED
    assert coverage(affected, "0.5.11") is Coverage.UNSPECIFIED


def test_cve_single_version_where_others_are_said_to_be_unaffected() -> None:
    affected = cve([{"version": "0.5.10", "status": "affected"}], defaultStatus="unaffected").affected[0]
    assert coverage(affected, "0.5.11") is Coverage.CLEAR


def test_cve_affected_by_default_but_from_a_version_on() -> None:
    affected = cve([{"version": "0.9", "status": "unaffected", "lessThan": "*"}], defaultStatus="affected").affected[0]
    assert coverage(affected, "0.8") is Coverage.AFFECTED
    assert coverage(affected, "0.9") is Coverage.CLEAR


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("< 0.18.2", "0.18.1", "0.18.2"),
        (">= 0.5.11, <= 0.5.14", "0.5.14", None),
        ("n/a", "0.1", None),
        ("All versions prior to 0.18.2", "0.18.1", "0.18.2"),
        ("All versions prior to v1.2", "1.2rc1", "1.2"),
        ("All versions prior to and including 1.2", "1.2", None),
        ("versions up to and including 1.2", "1.2", None),
        ("through 1.2", "1.2", None),
        ("1.2 and earlier", "0.1", None),
        ("1.2 or newer", "1.2", "1.1"),
        ("0.0  to v1.3.0 rc11", "1.3.0rc11", None),
        ("1.0 - 1.2", "1.2", "0.9"),
    ],
)
def test_cve_versions_in_words(text: str, inside: str, outside: str | None) -> None:
    affected = cve([{"version": text, "status": "affected"}]).affected[0]
    assert coverage(affected, inside) is Coverage.AFFECTED
    if outside is not None:
        assert coverage(affected, outside) is Coverage.CLEAR


def test_cve_words_are_no_wider_than_they_say() -> None:
    affected = cve([{"version": "0.0 to v1.3.0 rc11", "status": "affected"}]).affected[0]
    assert coverage(affected, "1.3.0rc12") is Coverage.OPEN
    assert coverage(cve([{"version": "1.0 to 1.2", "status": "affected"}]).affected[0], "0.9") is Coverage.CLEAR


def test_cve_scores_and_versions_of_other_publishers_count() -> None:
    tree = {
        "cveMetadata": {"cveId": "CVE-1"},
        "containers": {
            "cna": {
                "title": "CVE-1",
                "descriptions": [{"value": "words"}],
                "affected": [{"product": "SGLang", "versions": [{"version": "0.5.10", "status": "affected"}]}],
                "source": {"advisory": "GHSA-1", "discovery": "UNKNOWN"},
                "metrics": [{"cvssV3_1": {"baseScore": 7.0}}],
            },
            "adp": [
                {"title": "one", "metrics": [{"other": {}}, {"cvssV3_1": {"baseScore": 9.8}}]},
                {
                    "affected": [
                        {"product": "SGLang", "versions": [{"version": "0", "status": "affected", "lessThan": "2"}]}
                    ]
                },
            ],
        },
    }
    (record,) = read(tree)
    assert (record.summary, record.aliases, record.database_specific) == ("words", ("GHSA-1",), {"score": 9.8})
    assert [coverage(each, "1.0") for each in record.affected] == [Coverage.UNSPECIFIED, Coverage.AFFECTED]


def test_cve_of_llama_cpp_builds() -> None:
    versions = [{"version": "b8227", "status": "affected", "lessThan": "b11393"}]
    affected = cve(versions, packageURL="pkg:github/ggml-org/llama.cpp").affected[0]
    assert coverage(affected, "11392", Grammar.BUILD) is Coverage.AFFECTED
    assert coverage(affected, "b11393", Grammar.BUILD) is Coverage.CLEAR


def test_cve_rejected_counts_as_withdrawn() -> None:
    assert cve([], state="REJECTED").withdrawn is not None


def test_cve_without_a_package_is_named_by_its_product() -> None:
    affected = cve([], packageURL=None, product="llama.cpp", vendor="ggml-org").affected[0]
    assert (affected.package.ecosystem, affected.package.name) == (BY_PRODUCT, "llama.cpp")


# CSAF


def csaf(status: dict[str, list[str]], leaves: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "document": {
            "title": "Bulletin 5883",
            "tracking": {"id": "NVIDIA-5883", "current_release_date": "2026-10-27T00:00:00Z"},
        },
        "product_tree": {
            "branches": [
                {
                    "category": "vendor",
                    "name": "NVIDIA",
                    "branches": [{"category": "product_name", "name": "TensorRT-LLM", "branches": leaves}],
                }
            ]
        },
        "vulnerabilities": [
            {
                "cve": "CVE-2026-65119",
                "product_status": status,
                "scores": [{"cvss_v3": {"baseScore": 7.8, "baseSeverity": "HIGH"}}],
            }
        ],
    }


def leaf(id_: str, name: str, category: str = "product_version") -> dict[str, Any]:
    return {"category": category, "name": name, "product": {"product_id": id_, "name": name}}


def test_csaf_listed_version() -> None:
    (record,) = read(csaf({"known_affected": ["P1"]}, [leaf("P1", "1.3.0rc24")]))
    (affected,) = record.affected
    assert record.id == "CVE-2026-65119"
    assert record.summary == "Bulletin 5883"
    assert record.database_specific["severity"] == "HIGH"
    assert affected.package.name == "TensorRT-LLM"
    assert coverage(affected, "v1.3.0rc24") is Coverage.AFFECTED
    assert coverage(affected, "1.3.0") is Coverage.UNSPECIFIED


def test_csaf_range_and_fix() -> None:
    leaves = [leaf("P1", "vers:pypi/<1.2", "product_version_range"), leaf("P2", "1.2")]
    (record,) = read(csaf({"known_affected": ["P1"], "fixed": ["P2"]}, leaves))
    assert coverage(record.affected[0], "1.1") is Coverage.AFFECTED
    assert coverage(record.affected[0], "v1.2") is Coverage.CLEAR


def test_csaf_product_without_versions_is_unspecified() -> None:
    (record,) = read(csaf({"known_affected": ["P1"]}, [leaf("P1", "all editions", "product_family")]))
    assert coverage(record.affected[0], "1.1") is Coverage.UNSPECIFIED


def test_csaf_versions_beside_the_product_as_nvidia_has_them() -> None:
    """As the bulletins have it: the branch of a version is named as the product, and the product as its version."""

    def version(id_: str, name: str) -> dict[str, Any]:
        return {
            "category": "product_version",
            "name": "NVIDIA TensorRT-LLM",
            "product": {"product_id": id_, "name": name},
        }

    tree = csaf({"known_affected": ["P1", "P3"], "fixed": ["P2"]}, [])
    tree["product_tree"]["branches"][0]["branches"] = [
        {"category": "product_family", "name": "NVIDIA Product Family", "branches": [
            {"category": "product_name", "name": "NVIDIA TensorRT-LLM", "product": {"product_id": "P0", "name": "x"}}]},
        {"category": "architecture", "name": "All", "branches": [
            version("P1", "0.0 to v1.3.0 rc14"), version("P2", "v1.3.0 rc15 or newer"),
            version("P3", "All versions prior to v0.9")]},
    ]  # fmt: skip
    tree["vulnerabilities"][0]["notes"] = [{"category": "summary", "text": "words"}]
    (record,) = read(tree)
    (affected,) = record.affected
    assert record.summary == "words"
    assert (affected.package.ecosystem, affected.package.name) == (BY_PRODUCT, "NVIDIA TensorRT-LLM")
    assert [coverage(affected, each) for each in ("0.1", "1.3.0rc14", "1.3.0rc15")] == [
        Coverage.AFFECTED, Coverage.AFFECTED, Coverage.CLEAR,
    ]  # fmt: skip


def test_csaf_that_names_a_product_it_does_not_describe_is_refused() -> None:
    with pytest.raises(ValueError, match="P9"):
        read(csaf({"known_affected": ["P9"]}, []))


def test_csaf_branches_have_a_bound() -> None:
    tree: dict[str, Any] = leaf("P1", "1.0")
    for _ in range(100):
        tree = {"category": "product_family", "name": "x", "branches": [tree]}
    with pytest.raises(ValueError, match="deep"):
        read(csaf({}, [tree]))
