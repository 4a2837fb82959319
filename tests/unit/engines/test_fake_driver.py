import sys
from collections.abc import Callable

import pytest

from pilothouse.engines.fake import FakeDriver
from pilothouse.model.spec import DeploymentSpec

MakeDeployment = Callable[..., DeploymentSpec]
DRIVER = FakeDriver()


def test_arguments_become_long_options_and_the_key_stays_out_of_them(make_deployment: MakeDeployment) -> None:
    args = {"ttft-ms": 1.5, "kv-blocks": 64, "events": True, "strict": False, "fail-on": ["a", "b"]}
    line = DRIVER.launch(
        make_deployment("fake", args=args), host="127.0.0.1", port=4000, api_key="k-1", weights=None, threads=1
    )
    assert line.argv == (
        sys.executable,
        "-P",
        "-m",
        "pilothouse.testing.fake_engine",
        "--host=127.0.0.1",
        "--port=4000",
        "--served-model-name=smollm2",
        "--ttft-ms=1.5",
        "--kv-blocks=64",
        "--events",
        "--fail-on=a,b",
    )
    assert line.env["PILOTHOUSE_REPLICA_KEY"] == "k-1"


def test_the_endpoint_carries_the_replicas_key(make_deployment: MakeDeployment) -> None:
    endpoint = DRIVER.endpoint(make_deployment("fake"), host="127.0.0.1", port=4000, api_key="k-1")
    assert (endpoint.host, endpoint.port, endpoint.authorization) == ("127.0.0.1", 4000, "Bearer k-1")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"port": 1}, "is set by Pilothouse"),
        ({"api-key": "x"}, "is set by Pilothouse"),
        ({"Max": 1}, "not a long option"),
        ({"--max": 1}, "not a long option"),
        ({"a=b": 1}, "not a long option"),
        ({"max": {"a": 1}}, "must be a text"),
        ({"max": None}, "must be a text"),
        ({"max": float("nan")}, "must be a text"),
        ({"max": [[1]]}, "must be a text"),
    ],
)
def test_arguments_of_another_form_are_refused(
    make_deployment: MakeDeployment, args: dict[str, object], message: str
) -> None:
    (problem,) = DRIVER.check(make_deployment("fake", args=args))
    assert problem.path == ("engine", "args", next(iter(args)))
    assert message in problem.message


def test_an_upstream_is_refused(make_deployment: MakeDeployment) -> None:
    (problem,) = DRIVER.check(make_deployment("fake", url="https://a.example"))
    assert problem.path == ("upstream",)
