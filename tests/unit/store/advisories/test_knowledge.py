import datetime as dt
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.model.posture import Action, AdvisoryRule, Exposure, Outcome, PostureSpec, Requirement, Waiver
from pilothouse.policy.advisories.records import OsvRecord, Snapshot
from pilothouse.policy.advisories.verdicts import Subject, Verdict
from pilothouse.store.advisories.knowledge import Gatherer, fingerprint, gather, policy_of
from pilothouse.store.advisories.local import AdvisoryStore, GivenWaiver
from pilothouse.store.advisories.shipped import shipped_policy, shipped_snapshot

TODAY = dt.date(2026, 12, 1)


def record(id_: str, fixed: str = "9", **also: Any) -> dict[str, Any]:
    events = [{"introduced": "0"}, {"fixed": fixed}]
    affected = [{"package": {"ecosystem": "PyPI", "name": "smg"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}]
    critical = {"severity": "CRITICAL"}
    return {"id": id_, "modified": "2026-11-30T00:00:00Z", "affected": affected, "database_specific": critical, **also}


def snapshot(*records: dict[str, Any], date: str = "2026-11-30") -> Snapshot:
    return Snapshot(date=date, records=tuple(msgspec.convert(each, OsvRecord) for each in records))


def verdict(directory: Path, posture: PostureSpec | None = None) -> Verdict:
    subject = Subject(name="one", package="smg", version="1.0", features={}, exposure=Exposure.LOCAL)
    return gather(directory, posture or PostureSpec()).verdicts([subject], TODAY)[0]


def test_what_is_shipped_alone(tmp_path: Path) -> None:
    found = verdict(tmp_path)
    assert (found.outcome, found.feed_age_days) == (Outcome.ALLOWED, 5)
    assert gather(tmp_path, PostureSpec()).feed.date == shipped_snapshot().date


def test_what_was_synced_and_what_is_in_the_feed_directory(tmp_path: Path) -> None:
    state, feed = tmp_path / "state", tmp_path / "feed"
    feed.mkdir()
    AdvisoryStore(state).keep(snapshot(record("CVE-1")))
    (feed / "a.json").write_text(json.dumps(record("CVE-2", "8", modified="2026-12-01T00:00:00Z")))
    found = verdict(state, PostureSpec(feed_directory=str(feed)))
    assert (found.outcome, [each.id for each in found.findings]) == (Outcome.DENIED, ["CVE-1", "CVE-2"])
    assert (found.upgrade_to, found.feed_age_days) == ("9", 0)
    assert [each.id for each in verdict(state).findings] == ["CVE-1"]


def test_waivers_of_the_file_and_of_commands(tmp_path: Path) -> None:
    store = AdvisoryStore(tmp_path)
    store.keep(snapshot(record("CVE-1"), record("CVE-2")))
    one, other = (
        Waiver(covers=each, owner="ana", reason="mitigated", expires="2026-12-01") for each in ("CVE-1", "CVE-2")
    )
    store.keep_waivers((GivenWaiver(waiver=one, given_by="ana", given_at="2026-11-30T00:00:00Z"),))
    assert verdict(tmp_path).outcome is Outcome.DENIED
    assert verdict(tmp_path, PostureSpec(waivers=(other,))).outcome is Outcome.ALLOWED
    assert store.waivers()[0].waiver == one


def test_a_feed_directory_that_is_missing_is_no_clean_bill(tmp_path: Path) -> None:
    found = verdict(tmp_path, PostureSpec(feed_directory=str(tmp_path / "missing")))
    assert found.outcome is Outcome.WARNED
    assert "missing cannot be read" in found.notes[0]


def test_state_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "synced.json").write_text("{")
    with pytest.raises(PilothouseError, match="damaged"):
        gather(tmp_path, PostureSpec())


def test_a_fleets_rules_go_first_and_its_requirements_replace() -> None:
    ours = shipped_policy()
    mine = AdvisoryRule(name="mine", action=Action.ALLOW)
    cleared = Requirement(name="sglang-text-only", package="sglang", feature="multimodal", at_least="0.6", reason="x")
    policy = policy_of(PostureSpec(rules=(mine,), requirements=(cleared,), max_feed_age_days=7))
    assert policy.rules == (mine, *ours.rules)
    assert policy.requirements[0] == cleared
    assert len(policy.requirements) == len(ours.requirements)
    assert policy.max_feed_age_days == 7
    assert policy_of(PostureSpec()) == ours


def test_every_file_that_counts_changes_the_fingerprint(tmp_path: Path) -> None:
    feed, store = tmp_path / "feed", AdvisoryStore(tmp_path / "state")
    feed.mkdir()
    posture = PostureSpec(feed_directory=str(feed))
    seen = [fingerprint(tmp_path / "state", posture)]
    store.keep(snapshot())
    seen.append(fingerprint(tmp_path / "state", posture))
    store.keep_waivers(())
    seen.append(fingerprint(tmp_path / "state", posture))
    (feed / "a.json").write_text("{}")
    seen.append(fingerprint(tmp_path / "state", posture))
    assert len(set(seen)) == 4


def test_what_cannot_be_read_any_more_counts_as_it_was(tmp_path: Path) -> None:
    state, feed = tmp_path / "state", tmp_path / "feed"
    feed.mkdir()
    store, gatherer, posture = AdvisoryStore(state), Gatherer(state), PostureSpec(feed_directory=str(feed))

    def ids() -> tuple[set[str], int]:
        knowledge = gatherer.gather(posture)
        known = {each.id for each in knowledge.index.advisories}
        return known & {"CVE-2099-1", "CVE-2099-2"}, len(knowledge.feed.unread)

    store.keep(snapshot(record("CVE-2099-1")))
    (feed / "a.json").write_text(json.dumps(record("CVE-2099-2")))
    given = Waiver(covers="CVE-2099-1", owner="ana", reason="mitigated", expires="2099-12-31")
    store.keep_waivers((GivenWaiver(waiver=given, given_by="ana", given_at="2026-11-30T00:00:00Z"),))
    assert ids() == ({"CVE-2099-1", "CVE-2099-2"}, 0)
    for name in ("synced.json", "waivers.json"):
        (state / name).write_text("{")
    (feed / "a.json").write_text("{")
    assert ids() == ({"CVE-2099-1", "CVE-2099-2"}, 3)
    assert gatherer.gather(posture).waivers == (given,)
    feed.rename(tmp_path / "gone")
    assert ids() == ({"CVE-2099-1", "CVE-2099-2"}, 4)
    feed.mkdir()
    store.keep(snapshot())
    store.keep_waivers(())
    assert ids() == (set(), 0)
