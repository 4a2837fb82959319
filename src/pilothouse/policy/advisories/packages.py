"""Under which name the feeds know what a deployment runs, and how that writes its versions."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from pilothouse.policy.advisories.records import OsvPackage
from pilothouse.policy.advisories.versions import Grammar

_RUNS = re.compile(r"[-_.\s]+")
_PYPI = "pypi/"
BY_PRODUCT = "product"
"""The ecosystem of ours for records that name a product and no package: only listed names are taken from them."""


class Package(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A package that feeds know.

    Attributes:
        key: `pypi/NAME`, or `github/OWNER/REPOSITORY`.
        names: Other names of the same code: repackaged builds, images, binaries.
        grammar: How its versions are written.
        hosted: Somebody else runs it and no version is known, so that advisories do not apply.
    """

    key: str
    names: tuple[str, ...] = ()
    grammar: Grammar = Grammar.PEP440
    hosted: bool = False

    @property
    def title(self) -> str:
        """What people call it."""
        return self.key.rpartition("/")[2]


class PackageNames:
    """Packages by any name. A name that is nowhere listed is a Python package of that name."""

    def __init__(self, packages: Sequence[Package]) -> None:
        self.packages = tuple(packages)
        self._by_key: dict[str, Package] = {each.key: each for each in packages}
        self._by_name: dict[str, Package] = {}
        for each in packages:
            for name in (each.title, each.key, *each.names):
                self._by_name.setdefault(normalised(name), each)

    def named(self, name: str) -> Package:
        """The package that somebody calls `name`."""
        wanted = normalised(name)
        return self._by_name.get(wanted) or Package(key=_PYPI + wanted)

    def is_listed(self, package: OsvPackage) -> bool:
        """Whether a record's package is one of the table's."""
        found = self.recorded(package)
        return found is not None and found.key in self._by_key

    def recorded(self, package: OsvPackage) -> Package | None:
        """The package that a record is about; `None` for an ecosystem whose versions we do not compare."""
        if package.ecosystem == BY_PRODUCT and not package.purl:
            return self._by_name.get(normalised(package.name))
        key = _key_of(package)
        if key is None:
            return None
        known = self._by_key.get(key)
        if known is None and key.startswith(_PYPI):
            return self.named(key.removeprefix(_PYPI))
        return known


def normalised(name: str) -> str:
    """A name by PEP 503 (lower case, runs of `-`, `_` and `.` as one dash), spaces in it as dashes."""
    return _RUNS.sub("-", name.strip()).lower()


_ECOSYSTEMS: Mapping[str, str] = {"pypi": _PYPI, "pip": _PYPI, "github": "github/"}


def _key_of(package: OsvPackage) -> str | None:
    if package.purl and package.purl.startswith("pkg:"):
        kind, _, rest = package.purl.removeprefix("pkg:").partition("/")
        name = re.split(r"[@?#]", rest, maxsplit=1)[0]
    else:
        kind, name = package.ecosystem.partition(":")[0], package.name
    prefix = _ECOSYSTEMS.get(kind.lower())
    if prefix is None or not name:
        return None
    return prefix + (normalised(name) if prefix == _PYPI else name.lower())
