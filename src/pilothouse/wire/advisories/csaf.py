"""CSAF 2.0 documents, a bulletin each: https://docs.oasis-open.org/csaf/csaf/v2.0/csaf-v2.0.html."""

from collections.abc import Iterator
from typing import Any

import msgspec

from pilothouse.policy.advisories.packages import BY_PRODUCT
from pilothouse.policy.advisories.records import OsvAffected, OsvPackage, OsvRecord
from pilothouse.wire.advisories.comparators import affected_of

_DEEPEST = 32


class _Product(msgspec.Struct):
    product_id: str
    name: str = ""


class _Branch(msgspec.Struct):
    category: str
    name: str
    branches: list["_Branch"] = []
    product: _Product | None = None


class _Group(msgspec.Struct):
    group_id: str
    product_ids: list[str] = []


class _Relationship(msgspec.Struct):
    product_reference: str
    full_product_name: _Product


class _Tree(msgspec.Struct):
    branches: list[_Branch] = []
    product_groups: list[_Group] = []
    relationships: list[_Relationship] = []


class _Note(msgspec.Struct):
    category: str = ""
    text: str = ""


class _Vulnerability(msgspec.Struct):
    cve: str | None = None
    title: str = ""
    notes: list[_Note] = []
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
            summary=each.title or _note(each) or about.title,
            affected=tuple(_affected(each, products)),
            database_specific={"bulletin": about.tracking.id, **_severity(each.scores)},
        )
        for number, each in enumerate(document.vulnerabilities)
    ]


def _note(vulnerability: _Vulnerability) -> str:
    return next((each.text for each in vulnerability.notes if each.category in {"summary", "description"}), "")


def _products(branches: list[_Branch], product: str, depth: int) -> Iterator[tuple[str, tuple[str, str]]]:
    """(product id, (product, version or range in words)) of every leaf.

    A version's branch is under that of its product, and named as the version; or, as NVIDIA has it, it is named as the
    product, and the product in it as the version.
    """
    if depth > _DEEPEST:
        raise ValueError("branches are nested too deep")
    for each in branches:
        name = each.name if each.category == "product_name" else product
        if each.product is not None:
            if each.category not in {"product_version", "product_version_range"}:
                yield each.product.product_id, (name, "")
            elif name:
                yield each.product.product_id, (name, each.name)
            else:
                yield each.product.product_id, (each.name, each.product.name)
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
