"""The `posture` section."""

from collections.abc import Callable

import pytest

from pilothouse.config.changes import changes
from pilothouse.config.effective import effective_yaml
from pilothouse.config.loaded import LoadedFleet
from pilothouse.model.posture import (
    Action,
    AdvisoryRule,
    Exposure,
    FindingState,
    PostureSpec,
    Requirement,
    Severity,
    Waiver,
)

Load = Callable[..., LoadedFleet]
Refuse = Callable[..., list[str]]

MODELS = "models: {m: {deployments: [{name: one, engine: fake}]}}\n"
WHOLE = (
    MODELS
    + """
posture:
  exposure: internal
  max_feed_age_days: 7
  sources: {osv: "https://api.osv.dev", directory: feed, allow_private: true}
  rules:
    - {name: mine, action: deny, states: [affected, unknown], package: vllm, feature: video, min_severity: high,
       min_age_days: 3, exposures: [internal, public]}
  requirements:
    - {name: sglang-text-only, package: sglang, feature: multimodal, at_least: 0.6.0, reason: cleared}
  waivers:
    - {covers: CVE-2026-1, owner: ana, reason: mitigated, expires: "2026-12-31", deployments: [one]}
  webhook: {url: "https://hooks.example.com/x", allow_private: true}
"""
)


def test_a_whole_section(load_text: Load) -> None:
    loaded = load_text(WHOLE)
    posture = loaded.spec.posture
    assert posture.feed_directory is not None
    assert posture.feed_directory.startswith("/")
    assert posture.feed_directory.endswith("/feed")
    assert posture == PostureSpec(
        exposure=Exposure.INTERNAL,
        max_feed_age_days=7,
        osv_url="https://api.osv.dev",
        feed_directory=posture.feed_directory,
        allow_private_feed=True,
        rules=(
            AdvisoryRule(
                name="mine",
                action=Action.DENY,
                states=(FindingState.AFFECTED, FindingState.UNKNOWN),
                package="vllm",
                feature="video",
                min_severity=Severity.HIGH,
                min_age_days=3,
                exposures=(Exposure.INTERNAL, Exposure.PUBLIC),
            ),
        ),
        requirements=(
            Requirement(
                name="sglang-text-only", package="sglang", feature="multimodal", at_least="0.6.0", reason="cleared"
            ),
        ),
        waivers=(
            Waiver(covers="CVE-2026-1", owner="ana", reason="mitigated", expires="2026-12-31", deployments=("one",)),
        ),
        webhook="https://hooks.example.com/x",
        allow_private_webhook=True,
    )
    assert load_text(effective_yaml(loaded)).spec == loaded.spec


def test_nothing_said_is_the_default(load_text: Load) -> None:
    loaded = load_text(MODELS)
    assert loaded.spec.posture == PostureSpec()
    assert "posture" not in effective_yaml(loaded)


def test_a_change_is_told(load_text: Load) -> None:
    before, after = load_text(MODELS).spec, load_text(MODELS + "posture: {exposure: public}\n").spec
    assert any("posture.exposure" in line for line in changes(before, after))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{exposure: everywhere}", "exposure"),
        ("{waivers: [{covers: X, owner: a, reason: b, expires: 31.12.2026}]}", "must be a day, as in '2026-12-31'"),
        (
            '{waivers: [{covers: X, owner: a, reason: b, expires: "2026-12-31", deployments: [on]}]}',
            "there is no deployment 'on' (did you mean 'one'?)",
        ),
        ("{sources: {osv: 'http://169.254.169.254'}}", "link-local and metadata addresses are refused"),
        ("{webhook: {url: 'ftp://x'}}", "must begin with http:// or https://"),
        ("{rules: [{name: x, action: explode}]}", "action"),
        ("{rules: [{name: x, action: deny, states: []}]}", "states"),
    ],
)
def test_mistakes(refuse: Refuse, section: str, message: str) -> None:
    assert any(message in line for line in refuse(f"{MODELS}posture: {section}\n"))
