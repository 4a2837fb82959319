from collections.abc import Callable

import pytest

from pilothouse.engines.openai import OpenAIDriver
from pilothouse.model.fleet import Endpoint
from pilothouse.model.requests import Route
from pilothouse.model.spec import DeploymentSpec

MakeDeployment = Callable[..., DeploymentSpec]
DRIVER = OpenAIDriver()


def endpoint_of(deployment: DeploymentSpec) -> Endpoint:
    return DRIVER.endpoint(deployment)


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "base_path"),
    [
        ("https://api.openai.com/v1", "api.openai.com", 443, True, ""),
        ("https://api.openai.com/v1/", "api.openai.com", 443, True, ""),
        ("https://api.openai.com", "api.openai.com", 443, True, ""),
        ("https://api.groq.com/openai/v1", "api.groq.com", 443, True, "/openai"),
        ("http://127.0.0.1:8000/v1", "127.0.0.1", 8000, False, ""),
        ("http://engine", "engine", 80, False, ""),
        ("http://[::1]:8000/a/b/v1/", "::1", 8000, False, "/a/b"),
        ("https://example.com/v1beta", "example.com", 443, True, "/v1beta"),
    ],
)
def test_the_url_becomes_an_endpoint_without_the_version(
    make_deployment: MakeDeployment, url: str, host: str, port: int, tls: bool, base_path: str
) -> None:
    deployment = make_deployment("openai", url=url)
    assert DRIVER.check(deployment) == []
    assert endpoint_of(deployment) == Endpoint(host=host, port=port, tls=tls, base_path=base_path)


def test_the_key_becomes_the_authorization(make_deployment: MakeDeployment) -> None:
    with_key = endpoint_of(make_deployment("openai", url="https://example.com/v1", api_key="sk-1"))
    assert with_key.authorization == "Bearer sk-1"


def test_the_server_is_asked_by_its_own_name_for_the_model(make_deployment: MakeDeployment) -> None:
    assert DRIVER.served_model(make_deployment("openai", url="https://a.example", upstream_model="m-70b")) == "m-70b"
    assert DRIVER.served_model(make_deployment("openai", url="https://a.example")) is None


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://example.com", "must begin with http"),
        ("example.com/v1", "must begin with http"),
        ("https://", "must begin with http"),
        ("https://user:secret@example.com/v1", "credentials do not belong in a URL"),
        ("https://example.com/v1?key=1", "must end with the path"),
        ("https://example.com/v1#x", "must end with the path"),
        ("https://example.com:99999/v1", "not a URL"),
        ("https://example.com:0/v1", "port 0"),
        ("https://[::1/v1", "not a URL"),
        ("https://example.com/a b", "spaces"),
        ("https://ex\u00e4mple.com/v1", "beyond ASCII"),
        ("https://example.com/\x7f", "beyond ASCII"),
        ("http://169.254.169.254/v1", "link-local"),
        ("http://[fe80::1]/v1", "link-local"),
        ("http://[fe80::1%25eth0]/v1", "link-local"),
        ("http://[::ffff:169.254.169.254]/v1", "link-local"),
    ],
)
def test_urls_that_cannot_be_meant_are_refused(make_deployment: MakeDeployment, url: str, message: str) -> None:
    (problem,) = DRIVER.check(make_deployment("openai", url=url))
    assert problem.path == ("upstream", "url")
    assert message in problem.message
    assert "secret" not in problem.message


@pytest.mark.parametrize("key", ["", "sk-1\n", "sk-1\r\nx-evil: 1", "sk 1", "sk-\u00e9"])
def test_a_key_that_a_header_cannot_carry_is_refused_and_not_shown(make_deployment: MakeDeployment, key: str) -> None:
    (problem,) = DRIVER.check(make_deployment("openai", url="https://a.example", api_key=key))
    assert problem.path == ("upstream", "api_key")
    assert "sk" not in problem.message


def test_what_belongs_to_processes_is_refused(make_deployment: MakeDeployment) -> None:
    problems = DRIVER.check(make_deployment("openai", weights="file:/x", version="1.0", args={"route": []}))
    assert [(problem.path, problem.suggestion) for problem in problems] == [
        (("upstream",), None),
        (("weights",), None),
        (("engine", "version"), None),
        (("engine", "args", "route"), "routes"),
    ]


def test_routes_can_be_listed(make_deployment: MakeDeployment) -> None:
    plain = make_deployment("openai", url="https://a.example")
    assert DRIVER.routes(plain) == (Route.CHAT_COMPLETIONS, Route.COMPLETIONS, Route.EMBEDDINGS)
    listed = make_deployment("openai", url="https://a.example", args={"routes": ["/v1/messages"]})
    assert DRIVER.check(listed) == []
    assert DRIVER.routes(listed) == (Route.MESSAGES,)


@pytest.mark.parametrize("value", ["/v1/messages", [], None, {"a": 1}])
def test_routes_have_to_be_a_list(make_deployment: MakeDeployment, value: object) -> None:
    (problem,) = DRIVER.check(make_deployment("openai", url="https://a.example", args={"routes": value}))
    assert "must be a list of paths" in problem.message


def test_a_misspelt_route_is_named_with_the_near_one(make_deployment: MakeDeployment) -> None:
    args = {"routes": ["/v1/messages", "/v1/message"]}
    (problem,) = DRIVER.check(make_deployment("openai", url="https://a.example", args=args))
    assert problem.path == ("engine", "args", "routes", 1)
    assert problem.suggestion == "/v1/messages"


def test_what_any_engine_behind_the_url_reserves_is_reserved() -> None:
    assert {"x-vllm-priority", "x-override-rid", "x-conversation-id", "openai-project"} <= set(DRIVER.reserved_headers)
    assert {"vllm_xargs", "custom_logit_processor", "id_slot", "service_tier"} <= set(DRIVER.reserved_fields)
