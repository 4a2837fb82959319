"""What comes with the package: a dated snapshot of advisories, the overlay, names, features and the default posture."""

import functools
import importlib.resources
from typing import TypeVar

import msgspec

from pilothouse.model.posture import PosturePolicy
from pilothouse.policy.advisories.features import Feature, FeatureTable, OverlayEntry
from pilothouse.policy.advisories.packages import Package, PackageNames
from pilothouse.policy.advisories.records import Snapshot

_Shape = TypeVar("_Shape")


@functools.cache
def shipped_snapshot() -> Snapshot:
    """The advisories known when this version was made: a sample, so that a closed network starts with something."""
    return _read("snapshot.json", Snapshot)


@functools.cache
def shipped_overlay() -> tuple[OverlayEntry, ...]:
    """Which features advisories need to bite."""
    return _read("overlay.json", tuple[OverlayEntry, ...])


@functools.cache
def shipped_policy() -> PosturePolicy:
    """The default posture."""
    return _read("posture.json", PosturePolicy)


@functools.cache
def feature_table() -> FeatureTable:
    """The features that predicates and requirements speak of."""
    return FeatureTable(_read("features.json", tuple[Feature, ...]))


@functools.cache
def package_names() -> PackageNames:
    """Packages, and the names under which they are deployed."""
    return PackageNames(_read("packages.json", tuple[Package, ...]))


def _read(name: str, shape: type[_Shape]) -> _Shape:
    content = importlib.resources.files("pilothouse.store.advisories").joinpath("data", name).read_bytes()
    return msgspec.json.decode(content, type=shape)
