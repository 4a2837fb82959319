"""Engines by workload."""

from pilothouse.policy.workload.classify import Workload
from pilothouse.policy.workload.engines import (
    DEFAULT_TABLE,
    Deployment,
    Row,
    order_deployments,
    unknown_names,
    with_overrides,
)

VLLM = Deployment(name="m-vllm", engine="vllm")
SGLANG = Deployment(name="m-sglang", engine="sglang")
LLAMA = Deployment(name="m-llama", engine="llamacpp")


def test_every_workload_has_a_row_with_its_why() -> None:
    assert set(DEFAULT_TABLE) == set(Workload)
    assert all(row.prefer and row.why for row in DEFAULT_TABLE.values())


def test_the_preferred_engine_comes_first_and_the_others_in_the_files_order() -> None:
    assert order_deployments(Workload.STRUCTURED, [LLAMA, VLLM, SGLANG]).order == ("m-sglang", "m-vllm", "m-llama")
    assert order_deployments(Workload.CHAT, [LLAMA, SGLANG, VLLM]).order == ("m-vllm", "m-llama", "m-sglang")


def test_it_falls_through_when_the_preferred_one_is_unavailable() -> None:
    down = Deployment(name="m-sglang", engine="sglang", available=False)
    choice = order_deployments(Workload.STRUCTURED, [down, VLLM])
    assert choice.order == ("m-vllm",)
    assert choice.left_out == {"m-sglang": "no replica is ready, or all are full"}
    assert order_deployments(Workload.CHAT, []).order == ()


def test_images_never_go_to_an_engine_whose_multimodal_path_has_open_advisories() -> None:
    risky = Deployment(name="m-sglang", engine="sglang", refuses=frozenset({Workload.MULTIMODAL}))
    assert order_deployments(Workload.MULTIMODAL, [risky]).order == ()
    assert order_deployments(Workload.STRUCTURED, [risky]).order == ("m-sglang",)


def test_operators_override_rows_by_deployment_or_engine() -> None:
    table = with_overrides({Workload.CHAT: Row(prefer=("m-llama",), why="ours", never=("vllm", "m-other"))})
    choice = order_deployments(Workload.CHAT, [VLLM, SGLANG, LLAMA], table)
    assert (choice.order, choice.why) == (("m-llama", "m-sglang"), "ours")
    assert choice.left_out == {"m-vllm": "never for chat"}
    assert table[Workload.MOE] is DEFAULT_TABLE[Workload.MOE]


def test_rows_that_name_nothing_are_told() -> None:
    rows = {Workload.CHAT: Row(prefer=("vllm", "m-gone"), why="", never=("sglang",))}
    assert unknown_names(rows, [VLLM]) == [(Workload.CHAT, "m-gone"), (Workload.CHAT, "sglang")]
