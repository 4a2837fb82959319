from pathlib import Path

import pytest

from pilothouse.config.fleet_file import load
from pilothouse.config.litellm_import import import_litellm
from pilothouse.model.errors import PilothouseError

CONFIG = """
model_list:
  - model_name: llama
    litellm_params:
      model: hosted_vllm/meta/llama-8b
      api_base: http://10.0.0.5:8000/v1
      rpm: 60
  - model_name: llama
    litellm_params:
      model: openai/llama-8b
      api_base: http://10.0.0.6:8000/v1
      api_key: os.environ/VLLM_KEY
      timeout: 30
  - model_name: fast
    litellm_params: {model: groq/llama-70b, api_key: os.environ/GROQ_KEY}
  - model_name: claude
    litellm_params: {model: anthropic/claude, api_key: os.environ/ANTHROPIC_KEY}
  - model_name: "openai/*"
    litellm_params: {model: openai/*}
  - model_name: secret
    litellm_params: {model: gpt-x, api_key: sk-123}
  - model_name: elsewhere
    litellm_params: {model: openai/x, api_base: os.environ/BASE}
  - nonsense
litellm_settings: {max_budget: 100, budget_duration: 30d, cache: true}
general_settings: {master_key: sk-1, database_url: postgresql://x}
router_settings: {routing_strategy: least-busy}
"""


def test_the_fleet_file_is_one_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(import_litellm(CONFIG).fleet_file)
    spec = load(path, env={"VLLM_KEY": "v", "GROQ_KEY": "g"}).spec
    upstreams = {
        model.name: [
            (each.upstream.url, each.upstream.model, each.upstream.api_key)
            for each in model.deployments
            if each.upstream is not None
        ]
        for model in spec.models
    }
    assert upstreams == {
        "llama": [
            ("http://10.0.0.5:8000/v1", "meta/llama-8b", None),
            ("http://10.0.0.6:8000/v1", "llama-8b", "v"),
        ],
        "fast": [("https://api.groq.com/openai/v1", "llama-70b", "g")],
        "secret": [("https://api.openai.com/v1", "gpt-x", None)],
    }


def test_budgets_become_commands() -> None:
    assert import_litellm(CONFIG).commands == ("pilothouse tenants create default --money-per-month 100",)


@pytest.mark.parametrize(
    "what",
    [
        "model_list[0].rpm",
        "model_list[1].timeout",
        "model_list[3]",
        "model_list[4]",
        "model_list[5].api_key",
        "model_list[6].api_base",
        "model_list[7]",
        "litellm_settings.cache",
        "general_settings.master_key",
        "general_settings.database_url",
        "router_settings",
    ],
)
def test_what_is_left_behind_is_said(what: str) -> None:
    imported = import_litellm(CONFIG)
    assert sum(line.startswith(f"{what}:") for line in imported.left_behind) == 1
    assert not any("sk-1" in line for line in (*imported.left_behind, imported.fleet_file))


def test_a_budget_without_a_day_or_month_is_left_behind() -> None:
    imported = import_litellm("model_list: []\nlitellm_settings: {max_budget: 5}\n")
    assert imported.commands == ()
    assert any("all time" in line for line in imported.left_behind)


@pytest.mark.parametrize("text", ["", "[]", "a: b", "model_list: 3", "{"])
def test_what_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(PilothouseError) as caught:
        import_litellm(text)
    assert caught.value.code == "config_invalid"
