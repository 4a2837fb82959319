import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilothouse.config.effective import effective_yaml
from pilothouse.config.fleet_file import load
from pilothouse.config.loaded import LoadedFleet

Load = Callable[..., LoadedFleet]

SOURCE = "pypi:tiny==1.0/tiny/tiny.gguf"


def test_each_value_says_where_it_came_from(load_text: Load) -> None:
    text = f"""\
models:
  tiny: {SOURCE}
  far:
    deployments:
      - name: far
        engine: {{name: openai, args: {{routes: [/v1/chat/completions], none: {{}}}}}}
        upstream: {{url: "https://h/v1", api_key: "${{env:KEY}}"}}
gateway:
  limits: {{idle_timeout_s: 3}}
"""
    env = {"KEY": "hunter2", "PILOTHOUSE_GATEWAY_WORKERS": "2"}
    shown = effective_yaml(load_text(text, env=env, overrides={"controller.listen": "127.0.0.1:0"}))
    assert "hunter2" not in shown
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[:24] == [
        "fleet: default # default",
        "models:",
        "tiny:",
        "deployments:",
        "- name: tiny-llamacpp # default",
        "engine:",
        "name: llamacpp # fleet.yaml:2",
        "weights:",
        f"source: {SOURCE} # fleet.yaml:2",
        "replicas: 1 # default",
        "far:",
        "deployments:",
        "- name: far # fleet.yaml:5",
        "engine:",
        "name: openai # fleet.yaml:6",
        "args:",
        "routes:",
        "- /v1/chat/completions # fleet.yaml:6",
        "none: {} # fleet.yaml:6",
        "upstream:",
        "url: https://h/v1 # fleet.yaml:7",
        'api_key: "${env:KEY}" # fleet.yaml:7',
        "replicas: 1 # default",
        "gateway:",
    ]
    assert "workers: 2 # environment PILOTHOUSE_GATEWAY_WORKERS" in lines
    assert "idle_timeout_s: 3.0 # fleet.yaml:9" in lines
    assert "max_head_bytes: 32768 # default" in lines
    assert lines[-1] == "listen: 127.0.0.1:0 # command line"


def test_values_under_an_alias_say_the_line_of_the_alias(load_text: Load) -> None:
    text = f"""\
models:
  a:
    deployments:
      - {{engine: &e {{name: llamacpp, args: {{ctx-size: 1}}}}, weights: "{SOURCE}", name: a}}
      - {{engine: *e, weights: "{SOURCE}", name: b}}
"""
    lines = [" ".join(line.split()) for line in effective_yaml(load_text(text)).splitlines()]
    assert [line for line in lines if line.startswith("ctx-size")] == [
        "ctx-size: 1 # fleet.yaml:4",
        "ctx-size: 1 # fleet.yaml:5",
    ]


_names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text().filter(lambda text: "${" not in text),
)
_arguments = st.dictionaries(
    st.text(min_size=1, max_size=8),
    st.recursive(
        _leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
        max_leaves=6,
    ),
    max_size=4,
)
_weights = st.fixed_dictionaries(
    {"source": st.sampled_from([SOURCE, "file:a b/c.gguf", "hf:o/r@main/x", "file:~/x", "file:#x: y"])},
    optional={"sha256": st.from_regex("[0-9a-fA-F]{64}", fullmatch=True)},
)
_upstreams = st.fixed_dictionaries(
    {"url": st.sampled_from(["https://h/v1", "http://[::1]:80"])},
    optional={"model": st.from_regex("[!-~]{1,9}", fullmatch=True), "api_key": st.just("${env:KEY}")},
)
_deployments = st.fixed_dictionaries(
    {
        "engine": st.one_of(
            st.just("llamacpp"),
            st.fixed_dictionaries({"name": st.just("fake")}, optional={"version": _names, "args": _arguments}),
        )
    },
    optional={
        "weights": _weights,
        "upstream": _upstreams,
        "replicas": st.integers(0, 9),
        "capacity": st.fixed_dictionaries({"slots": st.integers(1, 99), "tokens": st.integers(1, 2**30)}),
    },
)


@st.composite
def fleet_files(draw: st.DrawFn) -> dict[str, Any]:
    models = draw(st.dictionaries(_names, st.lists(_deployments, min_size=1, max_size=2), min_size=1, max_size=3))
    file: dict[str, Any] = {"models": {}}
    for number, (name, deployments) in enumerate(models.items()):
        named = [{"name": f"d{number}.{index}", **each} for index, each in enumerate(deployments)]
        priced = {"price": {"input": draw(st.floats(0, 99)), "output": 1.5}} if draw(st.booleans()) else {}
        file["models"][name] = {"deployments": named, **priced} if draw(st.booleans()) else SOURCE
    if draw(st.booleans()):
        file["gateway"] = {
            "limits": {"idle_timeout_s": draw(st.floats(1e-9, 1e5)), "max_body_bytes": draw(st.integers(1, 2**40))}
        }
        if draw(st.booleans()):
            file["gateway"] |= {
                "shared_limits": {"redis": "${env:KEY}", "when_unavailable": "closed"},
                "queue": {"max_wait_s": draw(st.floats(0.1, 99)), "tiers": {"batch": {"guarantee": 0.2}}},
            }
    if draw(st.booleans()):
        file["controller"] = {"database": "${env:KEY}"}
    if draw(st.booleans()):
        file["fleet"] = draw(st.sampled_from(["a", "7", "on-call", "0x1f", "null"]))
    return file


@given(fleet_files())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_effective_form_is_a_file_of_the_same_fleet(tmp_path: Path, file: dict[str, Any]) -> None:
    env = {"KEY": "hunter2", "HOME": "/home/o"}
    (tmp_path / "fleet.yaml").write_text(json.dumps(file))
    first = load(tmp_path / "fleet.yaml", env=env)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "fleet.yaml").write_text(effective_yaml(first))
    second = load(elsewhere / "fleet.yaml", env=env)
    assert second.spec == first.spec
    assert [each.digest() for model in second.spec.models for each in model.deployments] == [
        each.digest() for model in first.spec.models for each in model.deployments
    ]
