"""CSAF 2.0 documents, a bulletin each: https://docs.oasis-open.org/csaf/csaf/v2.0/csaf-v2.0.html."""

from collections.abc import Iterator
from typing import Any

import msgspec

from pilothouse.policy.advisories.packages import BY_PRODUCT
from pilothouse.policy.advisories.records import OsvAffected, OsvPackage, OsvRecord
from pilothouse.wire.advisories.comparators import affected_of

_DEEPEST = 32


class _ProductId(msgspec.Struct):
    product_id: str


class _Branch(msgspec.Struct):
    category: str
    name: str
    branches: list["_Branch"] = []
    product: _ProductId | None = None


class _Group(msgspec.Struct):
    group_id: str
    product_ids: list[str] = []


class _Relationship(msgspec.Struct):
    product_reference: str
    full_product_name: _ProductId


class _Tree(msgspec.Struct):
    branches: list[_Branch] = []
    product_groups: list[_Group] = []
    relationships: list[_Relationship] = []


class _Vulnerability(msgspec.Struct):
    cve: str | None = None
    title: str = ""
    product_status: dict[str, list[str]] = {}
    scores: list[dict[str, Any]] = []


class _Tracking(msgspec.Struct):
    id: str
    current_release_date: str
    initial_release_date: str | None = None
    status: str = ""


class _About(msgspec.Struct):
    title: str
    tracking: _Tracking


class _Document(msgspec.Struct):
    document: _About
    product_tree: _Tree = msgspec.field(default_factory=_Tree)
    vulnerabilities: list[_Vulnerability] = []


def records_of(tree: object) -> list[OsvRecord]:
    """One OSV record for each vulnerability of a bulletin.

    Raises:
        ValueError: it has another shape, or names a product that it does not describe.
    """
    document = msgspec.convert(tree, _Document)
    about = document.document
    products = dict(_products(document.product_tree.branches, "", 0))
    for each in document.product_tree.relationships:
        if each.product_reference in products:
            products[each.full_product_name.product_id] = products[each.product_reference]
    return [
        OsvRecord(
            id=each.cve or f"{about.tracking.id}-{number}",
            modified=about.tracking.current_release_date,
            published=about.tracking.initial_release_date,
            summary=each.title or about.title,
            affected=tuple(_affected(each, products)),
            database_specific={"bulletin": about.tracking.id, **_severity(each.scores)},
        )
        for number, each in enumerate(document.vulnerabilities)
    ]


def _products(branches: list[_Branch], product: str, depth: int) -> Iterator[tuple[str, tuple[str, str]]]:
    """(product id, (product, version or range in words)) of every leaf."""
    if depth > _DEEPEST:
        raise ValueError("branches are nested too deep")
    for each in branches:
        name = each.name if each.category == "product_name" else product
        if each.product is not None:
            is_version = each.category in {"product_version", "product_version_range"}
            yield each.product.product_id, (name, each.name if is_version else "")
        yield from _products(each.branches, name, depth + 1)


def _affected(vulnerability: _Vulnerability, products: dict[str, tuple[str, str]]) -> Iterator[OsvAffected]:
    status = vulnerability.product_status
    ranges: dict[str, list[str]] = {}
    for product_id in status.get("known_affected", []):
        if product_id not in products:
            raise ValueError(f"product {product_id} is not described")
        name, text = products[product_id]
        ranges.setdefault(name, []).append(_range(text))
    fixed: dict[str, set[str]] = {}
    for name, text in (products[each] for each in status.get("fixed", []) if each in products):
        fixed.setdefault(name, set()).add(text)
    for name, texts in ranges.items():
        only = fixed.get(name, set())
        yield affected_of(
            OsvPackage(ecosystem=BY_PRODUCT, name=name),
            [text for text in texts if text],
            is_complete=False,
            fixed=only.copy().pop() if len(only) == 1 else None,
        )


def _range(text: str) -> str:
    """Without the head of a version range specifier, `vers:KIND/`."""
    return text.partition("/")[2] if text.startswith("vers:") else text


def _severity(scores: list[dict[str, Any]]) -> dict[str, Any]:
    for score in scores:
        found = score.get("cvss_v3")
        if isinstance(found, dict) and isinstance(found.get("baseSeverity"), str):
            return {"severity": found["baseSeverity"], "score": found.get("baseScore")}
    return {}
