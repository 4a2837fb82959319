from collections.abc import Callable

import pytest

from pilothouse.engines import registry, reserved
from pilothouse.engines.base import EngineGauge
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName, ModelName
from pilothouse.model.requests import Route
from pilothouse.model.spec import ControllerSpec, DeploymentSpec, FleetSpec, GatewaySpec, ListenAddress, ModelSpec

MakeDeployment = Callable[..., DeploymentSpec]


def fleet_of(*deployments: DeploymentSpec) -> FleetSpec:
    listen = ListenAddress(host="127.0.0.1", port=0)
    return FleetSpec(
        name=FleetName("default"),
        models=(ModelSpec(name=ModelName("smollm2"), deployments=deployments),),
        gateway=GatewaySpec(listen=listen),
        controller=ControllerSpec(listen=listen),
    )


def test_each_driver_is_found_by_the_name_it_has() -> None:
    assert {name: registry.driver(name).name for name in registry.names()} == {
        "llamacpp": "llamacpp",
        "openai": "openai",
        "fake": "fake",
    }


def test_an_unknown_engine_is_refused_with_the_near_name() -> None:
    with pytest.raises(PilothouseError, match=r"no engine 'llama.cpp'.*did you mean llamacpp\?") as caught:
        registry.driver("llama.cpp")
    assert caught.value.code == "config_invalid"


def test_an_engine_like_no_other_is_refused_with_the_list() -> None:
    with pytest.raises(PilothouseError, match=r"the engines are llamacpp, openai, fake$"):
        registry.driver("zzz")


def test_problems_of_a_fleet_come_with_whole_paths(make_deployment: MakeDeployment) -> None:
    spec = fleet_of(
        make_deployment("fake"),
        make_deployment("llamacpp", weights="file:/x.gguf", args={"ctx-sise": 4}),
        make_deployment("fak"),
    )
    found = registry.check_fleet(spec)
    assert [(problem.path, problem.suggestion) for problem in found] == [
        (("models", "smollm2", "deployments", 1, "engine", "args", "ctx-sise"), "ctx-size"),
        (("models", "smollm2", "deployments", 2, "engine", "name"), "fake"),
    ]


@pytest.mark.parametrize("name", registry.names())
def test_what_a_driver_reserves_can_be_compared_as_it_is(name: str) -> None:
    driver = registry.driver(name)
    assert all(header == header.lower() for header in driver.reserved_headers)
    assert len(set(driver.reserved_headers)) == len(driver.reserved_headers)
    assert len(set(driver.reserved_fields)) == len(driver.reserved_fields)


@pytest.mark.parametrize("name", registry.names())
def test_no_driver_reserves_what_the_api_itself_needs(name: str) -> None:
    api_fields = {"model", "messages", "prompt", "input", "stream", "stream_options", "max_tokens", "tools", "user"}
    assert not api_fields & set(registry.driver(name).reserved_fields)


def test_every_reserved_word_says_why() -> None:
    tables = [getattr(reserved, name) for name in dir(reserved) if name.endswith(("_HEADERS", "_FIELDS"))]
    assert len(tables) == 9
    assert all(why.strip() and name.strip() for table in tables for name, why in table.items())


def test_samples_of_several_ranks_are_summed_and_ratios_averaged() -> None:
    samples = [
        ("vllm:num_requests_running", 3.0),
        ("vllm:num_requests_running", 4.0),
        ("vllm:kv_cache_usage_perc", 0.2),
        ("vllm:kv_cache_usage_perc", 0.4),
        ("vllm:unheard_of", 9.0),
    ]
    assert registry.driver("fake").read_metrics(samples) == {
        EngineGauge.REQUESTS_RUNNING: 7.0,
        EngineGauge.KV_USAGE_RATIO: pytest.approx(0.3),
    }


def test_a_pinned_version_has_to_be_the_installed_one(make_deployment: MakeDeployment) -> None:
    fake = registry.driver("fake")
    installed = fake.installed_version()
    fake.require_installed(make_deployment("fake"))
    fake.require_installed(make_deployment("fake", version=installed))
    with pytest.raises(PilothouseError, match=rf"pins fake 9\.9, but {installed} is installed") as caught:
        fake.require_installed(make_deployment("fake", version="9.9"))
    assert caught.value.code == "engine_version_mismatch"


def test_an_engine_that_is_not_installed_says_how_to_install_it(
    make_deployment: MakeDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    llamacpp = registry.driver("llamacpp")
    monkeypatch.setattr(type(llamacpp), "installed_version", lambda self: None)
    with pytest.raises(PilothouseError) as caught:
        llamacpp.require_installed(make_deployment("llamacpp", weights="file:/x.gguf"))
    assert caught.value.code == "engine_not_installed"
    assert "pip install 'pilothouse[llamacpp]'" in caught.value.hint


def test_a_hosted_engine_needs_nothing_here(make_deployment: MakeDeployment) -> None:
    openai = registry.driver("openai")
    openai.require_installed(make_deployment("openai", url="https://example.com/v1"))
    assert openai.installed_version() is None


def test_the_fake_serves_every_route(make_deployment: MakeDeployment) -> None:
    assert set(registry.driver("fake").routes(make_deployment("fake"))) == set(Route)
