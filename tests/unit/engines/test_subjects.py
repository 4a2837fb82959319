import pytest

from pilothouse.config.fleet_file import load
from pilothouse.engines.subjects import exposure_of, subjects
from pilothouse.model.posture import Exposure
from pilothouse.model.spec import FleetSpec

FLEET = """
models:
  m:
    deployments:
      - engine: {{name: llamacpp, version: 2026.10.11549, args: {{slot-save-path: /tmp/x}}}}
        weights: file:./model.gguf
      - {{name: fake, engine: fake}}
      - {{name: others, engine: openai, upstream: {{url: "http://127.0.0.1:1/v1"}}}}
gateway: {{listen: "{listen}"}}
{more}
"""


def fleet(tmp_path_factory: pytest.TempPathFactory, listen: str = "127.0.0.1:1", more: str = "") -> FleetSpec:
    file = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    file.write_text(FLEET.format(listen=listen, more=more))
    return load(file, overrides={}, env={}).spec


def test_deployments_as_advisories_know_them(tmp_path_factory: pytest.TempPathFactory) -> None:
    llama, fake = subjects(fleet(tmp_path_factory))
    assert (llama.package, llama.version, llama.exposure) == ("llama.cpp", "11549", Exposure.LOCAL)
    assert (llama.features["slot_files"], llama.features["rpc"]) == (True, False)
    assert (fake.name, fake.package) == ("fake", "pilothouse")


@pytest.mark.parametrize(
    ("listen", "more", "exposure"),
    [
        ("127.0.0.1:1", "", Exposure.LOCAL),
        ("localhost:1", "", Exposure.LOCAL),
        ("0.0.0.0:1", "", Exposure.PUBLIC),
        ("inference.example.com:1", "", Exposure.PUBLIC),
        ("0.0.0.0:1", "posture: {exposure: internal}", Exposure.INTERNAL),
    ],
)
def test_who_can_send_requests(
    listen: str, more: str, exposure: Exposure, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert exposure_of(fleet(tmp_path_factory, listen, more)) is exposure
