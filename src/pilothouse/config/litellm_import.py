"""A LiteLLM proxy's config.yaml as a fleet file, and what of it could not be brought over.

LiteLLM's `model_list` maps public names to upstream parameters; several entries of one name are deployments of one
model. Only upstreams that speak OpenAI's API can be brought over as they are: those with an `api_base`, and a few
hosted ones whose address is known.
"""

import io
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pilothouse.model.errors import PilothouseError

_ENVIRONMENT = "os.environ/"
_HOSTED = {
    "openai": "https://api.openai.com/v1",
    "groq": "https://api.groq.com/openai/v1",
    "cerebras": "https://api.cerebras.ai/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "mistral": "https://api.mistral.ai/v1",
    "together_ai": "https://api.together.xyz/v1",
}
_COMPATIBLE = frozenset(
    (*_HOSTED, "hosted_vllm", "openai_like", "custom_openai", "text-completion-openai", "lm_studio")
)
_LIMITS = {"rpm": "requests per minute", "tpm": "tokens per minute", "max_parallel_requests": "requests at once"}
_UNDERSTOOD = frozenset(("model", "api_base", "api_key", *_LIMITS))


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet file as text, commands that make tenants with the budgets found, and what was left behind."""

    fleet_file: str
    commands: tuple[str, ...]
    left_behind: tuple[str, ...]


def import_litellm(text: str) -> Imported:
    """Read a LiteLLM config. Raises PilothouseError, config_invalid, when it is none."""
    try:
        config = YAML(typ="safe").load(text)
    except YAMLError as error:
        raise PilothouseError("config_invalid", f"not YAML: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_list"), list):
        raise PilothouseError("config_invalid", "a LiteLLM config has a model_list")
    left: list[str] = []
    models: dict[str, dict[str, Any]] = {}
    for index, entry in enumerate(config["model_list"]):
        _bring_over(entry, f"model_list[{index}]", models, left)
    commands = tuple(_commands(config, left))
    known = ("model_list", "litellm_settings", "general_settings")
    left += [f"{section}: not brought over" for section in config if section not in known]
    output = io.StringIO()
    writer = YAML()
    writer.default_flow_style = False
    writer.dump({"models": models}, output)
    return Imported(fleet_file=output.getvalue(), commands=commands, left_behind=tuple(left))


def _bring_over(entry: Any, where: str, models: dict[str, dict[str, Any]], left: list[str]) -> None:
    params = entry.get("litellm_params") if isinstance(entry, dict) else None
    name = entry.get("model_name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not isinstance(params, dict) or not isinstance(params.get("model"), str):
        left.append(f"{where}: has no model_name with litellm_params.model")
        return
    if "*" in name:
        left.append(f"{where}: {name} is a pattern; name each model")
        return
    provider, _, upstream_model = params["model"].partition("/")
    if not upstream_model:
        provider, upstream_model = "openai", provider
    url = params.get("api_base") or _HOSTED.get(provider)
    if provider not in _COMPATIBLE or not isinstance(url, str):
        left.append(f"{where}: {params['model']} does not speak OpenAI's API at a known address")
        return
    if not url.startswith(("http://", "https://")):
        left.append(f"{where}.api_base: {url} is no address; addresses are written out here")
        return
    upstream: dict[str, Any] = {"url": url, "model": upstream_model}
    key = params.get("api_key")
    if isinstance(key, str):
        upstream["api_key"] = _reference(key)
        if upstream["api_key"] == key:
            left.append(f"{where}.api_key: a secret in the file; write ${{env:NAME}} in its place")
            del upstream["api_key"]
    section = models.setdefault(name, {"deployments": []})
    number = len(section["deployments"]) + 1
    deployment = {"name": _deployment_name(name, number), "engine": {"name": "openai"}, "upstream": upstream}
    section["deployments"].append(deployment)
    for field, meaning in _LIMITS.items():
        if params.get(field) is not None:
            left.append(f"{where}.{field}: {meaning} of a deployment; limits here are of tenants and keys")
    left += [f"{where}.{field}: not brought over" for field in params if field not in _UNDERSTOOD]


def _commands(config: Mapping[str, Any], left: list[str]) -> Iterator[str]:
    """Keys are in LiteLLM's database, as hashes with another salt: they have to be made anew."""
    general = config.get("general_settings") or {}
    settings = config.get("litellm_settings") or {}
    if "master_key" in general:
        left.append("general_settings.master_key: the admin API has its own token, and keys are made by the fleet")
    if "database_url" in general:
        left.append("general_settings.database_url: keys are stored there as hashes; make new ones for their tenants")
    budget, duration = settings.get("max_budget"), str(settings.get("budget_duration", ""))
    period = {"1d": "day", "24h": "day", "30d": "month", "1mo": "month"}.get(duration)
    if budget is not None and period is not None:
        yield f"pilothouse tenants create default --money-per-{period} {float(budget):g}"
    elif budget is not None:
        left.append(f"litellm_settings.max_budget: budgets are of a day or a month, not of {duration or 'all time'}")
    for section, values in (("general_settings", general), ("litellm_settings", settings)):
        known = ("master_key", "database_url", "max_budget", "budget_duration")
        left += [f"{section}.{field}: not brought over" for field in values if field not in known]


def _reference(value: str) -> str:
    """LiteLLM's reference to an environment variable as ours."""
    return f"${{env:{value.removeprefix(_ENVIRONMENT)}}}" if value.startswith(_ENVIRONMENT) else value


def _deployment_name(model: str, number: int) -> str:
    cleaned = "".join(character if character.isalnum() else "-" for character in model.lower()).strip("-")
    return f"{cleaned or 'model'}-{number}"
