from typing import Any

import pytest

from pilothouse.engines import registry
from pilothouse.engines.launch_features import (
    LLAMACPP_FEATURES,
    SGLANG_FEATURES,
    TRTLLM_FEATURES,
    VLLM_FEATURES,
    features_of,
)
from pilothouse.store.advisories.shipped import feature_table


def vllm(**arguments: Any) -> dict[str, bool]:
    return features_of(VLLM_FEATURES, arguments, {})


def sglang(**arguments: Any) -> dict[str, bool]:
    return features_of(SGLANG_FEATURES, arguments, {})


def test_every_feature_is_one_that_there_is() -> None:
    rules = (*VLLM_FEATURES, *SGLANG_FEATURES, *TRTLLM_FEATURES, *LLAMACPP_FEATURES)
    drivers = (registry.driver(name) for name in registry.names())
    named = {each.feature for each in (*rules, *(rule for driver in drivers for rule in driver.features))}
    assert named <= {each.name for each in feature_table()}


def test_a_plain_launch_of_vllm() -> None:
    found = vllm()
    assert {name for name, on in found.items() if on} == set()
    # What is in the model's own configuration is not known.
    assert found.keys().isdisjoint({"multimodal", "video", "structured_output"})
    assert found.keys() >= {"kv_connector_mooncake", "prompt_embeds", "trust_remote_code", "scale_out_api", "dev_mode"}


@pytest.mark.parametrize(
    ("arguments", "feature"),
    [
        ({"kv-transfer-config": '{"kv_connector": "MooncakeConnector"}'}, "kv_connector_mooncake"),
        ({"kv_transfer_config": {"kv_connector": "P2pNcclConnector"}}, "kv_connector_p2p_nccl"),
        (
            {"kv-transfer-config": {"kv_connector": "MultiConnector", "x": {"connectors": ["MooncakeStore"]}}},
            "kv_connector_mooncake",
        ),
        ({"kv-transfer-config": {"kv_connector": "NixlConnector"}}, "disaggregation"),
        ({"enable-prompt-embeds": True}, "prompt_embeds"),
        ({"trust-remote-code": "true"}, "trust_remote_code"),
        ({"tokens-only": True}, "scale_out_api"),
        ({"enable-scale-out": True}, "scale_out_api"),
        ({"speculative-config": {"method": "ngram"}}, "speculative_decoding"),
    ],
)
def test_what_turns_a_feature_of_vllm_on(arguments: dict[str, Any], feature: str) -> None:
    assert vllm(**arguments)[feature] is True


@pytest.mark.parametrize(
    ("arguments", "feature"),
    [
        ({"trust-remote-code": False}, "trust_remote_code"),
        ({"enable-prompt-embeds": "false"}, "prompt_embeds"),
        ({"language-model-only": True}, "multimodal"),
        ({"limit-mm-per-prompt": {"image": 0, "video": 0, "audio": 0}}, "multimodal"),
        ({"limit-mm-per-prompt": '{"image": 4, "video": 0}'}, "video"),
    ],
)
def test_what_turns_a_feature_of_vllm_off(arguments: dict[str, Any], feature: str) -> None:
    assert vllm(**arguments)[feature] is False


@pytest.mark.parametrize(
    "arguments",
    [
        {"limit-mm-per-prompt": {"image": 4, "video": 0, "audio": 0}},
        {"limit-mm-per-prompt": {"image": 0, "video": 0}},
        {"language-model-only": False},
    ],
)
def test_what_leaves_multimodal_input_of_vllm_unknown(arguments: dict[str, Any]) -> None:
    assert "multimodal" not in vllm(**arguments)


def test_the_environment_tells_too() -> None:
    found = features_of(VLLM_FEATURES, {}, {"VLLM_SERVER_DEV_MODE": "1", "PYTHONOPTIMIZE": "2"})
    assert (found["dev_mode"], found["stripped_asserts"]) == (True, True)


@pytest.mark.parametrize(
    ("address", "routable"),
    [
        ("127.0.0.1:5000", False), ("localhost:5000", False), ("[::1]:5000", False), ("tcp://127.0.0.1:1", False),
        ("10.0.0.1:5000", True), ("node0:5000", True), ("localhost.example.com:1", True),
    ],
)  # fmt: skip
def test_where_sglang_meets(address: str, routable: bool) -> None:
    assert sglang(**{"dist-init-addr": address})["routable_dist_init"] is routable


def test_sglang() -> None:
    assert sglang()["admin_without_keys"] is True
    assert sglang(**{"admin-api-key": "x"})["admin_without_keys"] is False
    assert sglang(**{"disaggregation-mode": "prefill"})["disaggregation"] is True
    assert sglang(**{"disaggregation-mode": "null"})["disaggregation"] is False
    assert sglang(**{"encoder-only": True})["encoder_disaggregation"] is True
    assert sglang()["encoder_disaggregation"] is False
    assert sglang(**{"enable-multimodal": True})["multimodal"] is True
    assert "multimodal" not in sglang()


def test_llama_cpp() -> None:
    found = features_of(LLAMACPP_FEATURES, {"rpc": "10.0.0.2:50052"}, {})
    assert found == {"rpc": True, "slot_files": False, "multimodal": False}
