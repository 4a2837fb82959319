import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from pilothouse.config.fleet_file import json_schema, load
from pilothouse.config.schema import FleetFile, LimitsSection
from pilothouse.config.yaml_tree import parse_yaml
from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import GatewayLimits

SOURCE = "pypi:tiny==1.0/tiny/tiny.gguf"
GOOD: list[dict[str, Any]] = [
    {"models": {"a": SOURCE}},
    {"models": {"a": "file:x.gguf", "b": "hf:o/r@main", "c": "https://h/v1"}},
    {
        "fleet": "two",
        "models": {
            "org/m": {
                "deployments": [
                    {"name": "d", "engine": "llamacpp", "weights": SOURCE, "replicas": 2},
                    {
                        "engine": {
                            "name": "llamacpp",
                            "version": "1",
                            "args": {"ctx-size": 1, "x": [None, {"a": 1.5}]},
                        },
                        "weights": {"source": SOURCE, "sha256": "a" * 64},
                    },
                    {"engine": "openai", "upstream": {"url": "http://h", "model": "m", "api_key": "${env:HOME}"}},
                    {"name": "e", "engine": "openai", "upstream": "http://h"},
                ]
            }
        },
        "gateway": {"listen": "[::1]:8080", "workers": 2, "limits": {"idle_timeout_s": 1}},
        "controller": {"listen": "h:0"},
    },
]
BAD: list[dict[str, Any]] = [
    {},
    {"models": {}},
    {"models": {"a": "x"}},
    {"models": {"a b": SOURCE}},
    {"models": {"a": SOURCE}, "x": 1},
    {"models": {"a": {"deployments": []}}},
    {"models": {"a": {"deployments": [{}]}}},
    {"models": {"a": {"deployments": [{"engine": "llamacpp", "replicas": "2"}]}}},
    {"models": {"a": {"deployments": [{"engine": "llamacpp", "replicas": -1}]}}},
    {"models": {"a": {"deployments": [{"engine": {"version": "1"}}]}}},
    {"models": {"a": {"deployments": [{"engine": "openai", "upstream": {"url": "ftp://h"}}]}}},
    {"models": {"a": {"deployments": [{"engine": "openai", "upstream": {"url": "http://h", "api_key": "sk-1"}}]}}},
    {"models": {"a": SOURCE}, "gateway": {"listen": ":8080"}},
    {"models": {"a": SOURCE}, "gateway": {"workers": 0}},
    {"models": {"a": SOURCE}, "gateway": {"limits": {"x": 1}}},
    {"models": {"a": SOURCE}, "fleet": "A"},
    {"models": {"a": SOURCE}, "gateway": None},
]


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("file", GOOD)
def test_what_loads_is_valid(validator: Any, tmp_path: Path, file: dict[str, Any]) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(json.dumps(file))
    assert load(path, env={"HOME": "/h"}).spec.models
    validator.validate(file)


@pytest.mark.parametrize("file", BAD)
def test_what_is_refused_is_not_valid(validator: Any, tmp_path: Path, file: dict[str, Any]) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(json.dumps(file))
    with pytest.raises(PilothouseError):
        load(path, env={"HOME": "/h"})
    assert not validator.is_valid(file)


def test_the_built_in_fleet_is_valid(validator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    validator.validate(parse_yaml(load(None, env={}).text.encode()).value)


def test_every_key_is_described() -> None:
    schema = json_schema()
    sections = [schema, *schema["$defs"].values()]
    forms = [each for section in sections for each in (section, *section.get("anyOf", []))]
    described = {
        key: "description" in value or "$ref" in value
        for form in forms
        for key, value in form.get("properties", {}).items()
    }
    assert {"fleet", "models", "deployments", "sha256", "api_key", "idle_timeout_s"} <= set(described)
    assert all(described.values()), described


def test_the_limits_are_those_of_the_gateway() -> None:
    defaults = {name: field.default for name, field in LimitsSection.model_fields.items()}
    assert defaults == msgspec.structs.asdict(GatewayLimits())
    assert FleetFile.model_fields["fleet"].default == "default"
