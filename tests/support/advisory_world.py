"""Small worlds of advisories for tests: records in a line each, and verdicts over them."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from pilothouse.model.posture import AdvisoryRule, PosturePolicy, Requirement, Waiver
from pilothouse.policy.advisories.features import Feature, FeatureTable, OverlayEntry
from pilothouse.policy.advisories.grouping import unite
from pilothouse.policy.advisories.index import AdvisoryIndex
from pilothouse.policy.advisories.packages import Package, PackageNames
from pilothouse.policy.advisories.records import OsvAffected, OsvEvent, OsvPackage, OsvRange, OsvRecord
from pilothouse.policy.advisories.verdicts import FeedState, Subject, Verdict, evaluate

TODAY = dt.date(2026, 6, 30)
FEATURES = FeatureTable(
    (
        Feature(name="images", title="images", withholdable=True),
        Feature(name="video", title="video", withholdable=True, part_of="images"),
        Feature(name="tools", title="tools", withholdable=True),
        Feature(name="connector", title="a connector"),
    )
)
NAMES = PackageNames((Package(key="pypi/engine", names=("engine-cpu",)), Package(key="hosted/cloud", hosted=True)))


def record(
    id_: str, *bounds: tuple[str, str] | tuple[str], package: str = "engine", last: bool = False, **also: Any
) -> OsvRecord:
    """A record about (introduced, fixed) stretches; with `last` the second of a pair is the last affected version."""
    ranges = tuple(
        OsvRange(
            type="ECOSYSTEM",
            events=(
                OsvEvent(introduced=each[0]),
                *(OsvEvent(last_affected=end) if last else OsvEvent(fixed=end) for end in each[1:]),
            ),
        )
        for each in bounds
    )
    affected = OsvAffected(package=OsvPackage(ecosystem="PyPI", name=package), ranges=ranges)
    return OsvRecord(id=id_, **{"modified": "2026-01-01T00:00:00Z", "affected": (affected,), **also})


def severe(word: str) -> dict[str, Any]:
    """The field that makes a record this severe."""
    return {"database_specific": {"severity": word}}


def judged(
    records: Sequence[OsvRecord],
    version: str | None = "1.0",
    *,
    rules: Sequence[AdvisoryRule] = (),
    requirements: Sequence[Requirement] = (),
    overlay: Sequence[OverlayEntry] = (),
    waivers: Sequence[Waiver] = (),
    features: Mapping[str, bool] = {},
    feed: FeedState = FeedState(date="2026-06-29"),  # noqa: B008 -- a frozen value
    **subject: Any,
) -> Verdict:
    """The verdict on one deployment of `engine`."""
    index = AdvisoryIndex(unite(records, overlay), NAMES)
    one = Subject(**{"name": "one", "package": "engine", "version": version, "features": features, **subject})
    policy = PosturePolicy(rules=tuple(rules), requirements=tuple(requirements))
    return evaluate([one], index, FEATURES, feed, policy, waivers, TODAY)[0]
