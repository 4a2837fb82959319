"""How long it takes to judge a fleet: 1,000 deployments against 5,000 advisories, from records to verdicts."""

import datetime as dt
import random
import time
from collections.abc import Sequence

from benchmarks.bars.report import Bar, main
from pilothouse.policy.advisories.features import OverlayEntry, Predicate
from pilothouse.policy.advisories.grouping import unite
from pilothouse.policy.advisories.index import AdvisoryIndex
from pilothouse.policy.advisories.records import OsvAffected, OsvEvent, OsvPackage, OsvRange, OsvRecord
from pilothouse.policy.advisories.verdicts import FeedState, Subject, Verdict, evaluate
from pilothouse.store.advisories.shipped import feature_table, package_names, shipped_policy

LIMIT_S = 1.0
DEPLOYMENTS, ADVISORIES = 1000, 5000
ENGINES = ("vllm", "sglang", "tensorrt-llm", "ray", "mooncake")
_TODAY = dt.date(2026, 6, 30)
_ROUNDS = 5


def measure() -> list[Bar]:
    """Every deployment differs from all others in version or features, so that nothing is judged once for several.

    Over five engines, and the worst case: all advisories are about the one engine that all run.
    """
    return [_bar("five engines", ENGINES), _bar("one engine", ENGINES[:1])]


def _bar(name: str, engines: Sequence[str]) -> Bar:
    draw = random.Random(7)
    records = [_record(number, engines, draw) for number in range(ADVISORIES)]
    overlay = [_condition(number, draw) for number in range(0, ADVISORIES, 3)]
    subjects = [_subject(number, engines, draw) for number in range(DEPLOYMENTS)]
    times = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        index = AdvisoryIndex(unite(records, overlay), package_names())
        read = time.process_time() - began
        verdicts = _judge(index, subjects)
        times.append((time.process_time() - began, read))
    whole, read = min(times)
    findings = sum(len(each.findings) for each in verdicts)
    return Bar(
        name=f"1,000 deployments x 5,000 advisories, {name}",
        limit=f"< {LIMIT_S:g} s",
        measured=f"{whole:.2f} s of CPU, of which {read:.2f} s to unite the records; {findings:,} findings",
        passed=whole < LIMIT_S,
    )


def _judge(index: AdvisoryIndex, subjects: Sequence[Subject]) -> list[Verdict]:
    feed = FeedState(date=_TODAY.isoformat())
    return evaluate(subjects, index, feature_table(), feed, shipped_policy(), (), _TODAY)


def _version(draw: random.Random) -> str:
    return f"0.{draw.randrange(40)}.{draw.randrange(5)}"


def _record(number: int, engines: Sequence[str], draw: random.Random) -> OsvRecord:
    introduced, fixed = sorted((draw.randrange(40), draw.randrange(40)))
    events = (OsvEvent(introduced=f"0.{introduced}.0"), OsvEvent(fixed=f"0.{fixed}.{draw.randrange(1, 5)}"))
    package = OsvPackage(ecosystem="PyPI", name=draw.choice(engines))
    return OsvRecord(
        id=f"CVE-2026-{number}",
        aliases=(f"GHSA-{number}",),
        modified="2026-06-01T00:00:00Z",
        summary="a flaw",
        affected=(OsvAffected(package=package, ranges=(OsvRange(type="ECOSYSTEM", events=events),)),),
        database_specific={"severity": draw.choice(("LOW", "MODERATE", "HIGH", "CRITICAL"))},
    )


def _condition(number: int, draw: random.Random) -> OverlayEntry:
    when = Predicate(feature=draw.choice([each.name for each in feature_table()]))
    return OverlayEntry(ids=(f"GHSA-{number}",), when=when, reason="a feature")


def _subject(number: int, engines: Sequence[str], draw: random.Random) -> Subject:
    features = {each.name: draw.random() < 0.5 for each in feature_table() if draw.random() < 0.8}
    return Subject(name=f"deployment-{number}", package=draw.choice(engines), version=_version(draw), features=features)


if __name__ == "__main__":
    main("engines", measure())
