"""The `routing` section of a model."""

from collections.abc import Callable

import pytest

from pilothouse.config.effective import effective_yaml
from pilothouse.config.loaded import LoadedFleet
from pilothouse.model.spec import ArmSpec, PreferenceSpec, RoutingSpec

Load = Callable[..., LoadedFleet]
Refuse = Callable[..., list[str]]

DEPLOYMENTS = """
models:
  m:
    deployments:
      - {name: old, engine: fake}
      - {engine: fake, replicas: 2}
    routing:
"""


def model(*lines: str) -> str:
    return DEPLOYMENTS + "".join(f"      {line}\n" for line in lines)


GOOD = model(
    "policy: bounded-load-hash",
    "arms:",
    "  - {name: stable, deployments: [old], weight: 95}",
    "  - {name: canary, deployments: [m-fake], weight: 5}",
    "  - {name: shadow, deployments: [m-fake], mirror: 0.1}",
    "pins: {acme: canary}",
    "workloads: {chat: {prefer: [fake, old], never: [m-fake]}}",
)


def test_a_whole_section(load_text: Load) -> None:
    assert load_text(GOOD).spec.models[0].routing == RoutingSpec(
        policy="bounded-load-hash",
        arms=(
            ArmSpec(name="stable", deployments=("old",), weight=95),  # type: ignore[arg-type]
            ArmSpec(name="canary", deployments=("m-fake",), weight=5),  # type: ignore[arg-type]
            ArmSpec(name="shadow", deployments=("m-fake",), mirror=0.1),  # type: ignore[arg-type]
        ),
        pins={"acme": "canary"},
        workloads={"chat": PreferenceSpec(prefer=("fake", "old"), never=("m-fake",))},
    )


def test_the_effective_form_is_the_same_fleet(load_text: Load) -> None:
    loaded = load_text(GOOD)
    assert load_text(effective_yaml(loaded)).spec == loaded.spec


def test_nothing_said_is_the_default(load_text: Load) -> None:
    loaded = load_text("models: {m: {deployments: [{engine: fake}]}}\n")
    assert loaded.spec.models[0].routing == RoutingSpec()
    assert "routing" not in effective_yaml(loaded)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("policy: fastest", "fleet.yaml:8"),
        ("arms: [{name: a, deployments: [gone], weight: 1}]", "m has no deployment 'gone'; it has m-fake, old"),
        ("arms: [{name: a, deployments: [old]}]", "one arm at least needs a weight"),
        (
            "arms: [{name: a, deployments: [old], weight: 1}, {name: a, deployments: [old]}]",
            "an arm called 'a' already",
        ),
        ("pins: {acme: gone}", "there is no arm 'gone'"),
        ("workloads: {chat: {prefer: [vllm]}}", "m has no deployment or engine 'vllm'; it has fake, m-fake, old"),
        ("workloads: {gossip: {prefer: [fake]}}", "fleet.yaml:8"),
        ("workloads: 3", "fleet.yaml:8"),
        ("arms: [3]", "fleet.yaml:8"),
    ],
)
def test_problems_are_told_with_their_line(refuse: Refuse, line: str, problem: str) -> None:
    told = refuse(model(line))
    assert any(problem in one for one in told)
    assert any("fleet.yaml:8" in one for one in told), told
