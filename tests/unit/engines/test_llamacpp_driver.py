import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pilothouse.engines import gguf, llamacpp
from pilothouse.engines.base import EngineGauge
from pilothouse.engines.llamacpp import LlamaCppDriver
from pilothouse.engines.llamacpp_host import HostOptions
from pilothouse.model.requests import Route
from pilothouse.model.spec import DeploymentSpec

MakeDeployment = Callable[..., DeploymentSpec]
DRIVER = LlamaCppDriver()
MIB = 1024 * 1024


def options_of(deployment: DeploymentSpec, threads: int = 2) -> HostOptions:
    line = DRIVER.launch(
        deployment, host="127.0.0.1", port=4000, api_key="k-1", weights=Path("/w/m.gguf"), threads=threads
    )
    assert line.argv[:4] == (sys.executable, "-P", "-m", "pilothouse.engines.llamacpp_host")
    assert line.env == {"PILOTHOUSE_REPLICA_KEY": "k-1"}
    assert not any("k-1" in word for word in line.argv)
    return msgspec.json.decode(line.argv[4], type=HostOptions)


def test_left_alone_a_replica_has_four_slots_and_its_share_of_the_cores(make_deployment: MakeDeployment) -> None:
    options = options_of(make_deployment("llamacpp", weights="file:/w/m.gguf"), threads=3)
    assert options == HostOptions(
        model="/w/m.gguf",
        alias="smollm2",
        host="127.0.0.1",
        port=4000,
        arguments={
            "threads": 3,
            "parallel": 4,
            "ctx-size": 16384,
            "batch-size": 64,
            "cache-ram": 512,
            "fit": False,
        },
    )


def test_the_fleet_files_arguments_win_and_the_context_follows_the_slots(make_deployment: MakeDeployment) -> None:
    args = {"parallel": 2, "threads": 7, "no-fit": True, "cache-ram": 0}
    options = options_of(make_deployment("llamacpp", weights="file:/w/m.gguf", args=args))
    assert options.arguments == {**args, "ctx-size": 8192, "batch-size": 64}


def test_a_batch_has_room_for_every_slot(make_deployment: MakeDeployment) -> None:
    options = options_of(make_deployment("llamacpp", weights="file:/w/m.gguf", args={"parallel": 100}))
    assert options.arguments["batch-size"] == 100


def test_embeddings_are_a_route_only_where_they_are_turned_on(make_deployment: MakeDeployment) -> None:
    generating = {Route.CHAT_COMPLETIONS, Route.COMPLETIONS, Route.RESPONSES, Route.MESSAGES}
    plain = make_deployment("llamacpp", weights="file:/w/m.gguf")
    embedding = make_deployment("llamacpp", weights="file:/w/m.gguf", args={"embeddings": True})
    assert set(DRIVER.routes(plain)) == generating
    assert set(DRIVER.routes(embedding)) == generating | {Route.EMBEDDINGS}


@pytest.mark.parametrize(
    ("version", "build"),
    [
        ("2026.10.11549", "11549"),
        ("2026.4.8672.1", "8672"),
        ("0.2.14", "0.2.14"),  # of no known build
        ("2026.10.11549rc1", "2026.10.11549rc1"),
    ],
)
def test_advisories_are_held_against_the_build_inside_the_package(
    make_deployment: MakeDeployment, version: str, build: str
) -> None:
    deployment = make_deployment("llamacpp", weights="file:/w/m.gguf")
    pinned = msgspec.structs.replace(deployment, engine=msgspec.structs.replace(deployment.engine, version=version))
    assert DRIVER.advisory_version(pinned) == build


def test_weights_are_needed_and_an_upstream_is_not(make_deployment: MakeDeployment) -> None:
    problems = DRIVER.check(make_deployment("llamacpp", url="http://a.example", args={"paralel": 1}))
    assert [problem.path for problem in problems] == [("engine", "args", "paralel"), ("weights",), ("upstream",)]


def weights_of(tmp_path: Path, size: int) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(size))
    return path


def test_memory_counts_weights_cache_prompt_cache_and_an_overhead(
    make_deployment: MakeDeployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = gguf.GgufShape(context_length=8192, k_values_per_token=5760, v_values_per_token=5760)
    monkeypatch.setattr(llamacpp, "read_shape", lambda path: shape)
    weights = weights_of(tmp_path, 3 * MIB)

    def need(**args: object) -> int | None:
        args = {name.replace("_", "-"): value for name, value in args.items()}
        return DRIVER.memory_bytes(make_deployment("llamacpp", weights="file:/w", args=args), weights)

    base = (3 + 512 + 128) * MIB
    assert need() == base + 16384 * 5760 * 2 * 2
    assert need(ctx_size=2048) == base + 2048 * 5760 * 2 * 2
    assert need(ctx_size=0) == base + 8192 * 5760 * 2 * 2
    assert need(ctx_size=2048, cache_type_k="q8_0") == base + 2048 * 5760 * 34 // 32 + 2048 * 5760 * 2
    assert need(ctx_size=2048, cache_ram=0) == base - 512 * MIB + 2048 * 5760 * 2 * 2


def test_every_cache_type_has_a_size() -> None:
    from pilothouse.engines.llamacpp_arguments import ARGUMENTS

    assert set(llamacpp._CACHE_BYTES_PER_VALUE) == set(ARGUMENTS["cache-type-k"].choices)


def test_a_file_without_a_readable_head_counts_twice(make_deployment: MakeDeployment, tmp_path: Path) -> None:
    deployment = make_deployment("llamacpp", weights="file:/w", args={"cache-ram": 0})
    assert DRIVER.memory_bytes(deployment, weights_of(tmp_path, 5 * MIB)) == (5 + 5 + 128) * MIB
    assert DRIVER.memory_bytes(deployment, None) is None


def slot(n_ctx: int, busy: bool, tokens: int) -> dict[str, object]:
    return {"id": 0, "n_ctx": n_ctx, "is_processing": busy, "n_prompt_tokens": tokens, "next_token": [{"n_decoded": 9}]}


def test_the_caches_use_is_that_of_the_slots_at_work(make_deployment: MakeDeployment) -> None:
    deployment = make_deployment("llamacpp", weights="file:/w")
    body = msgspec.json.encode(
        [slot(1000, True, 300), slot(1000, False, 999), {"n_ctx": 1000, "is_processing": False}, slot(1000, True, 100)]
    )
    assert DRIVER.read_state(deployment, body) == {EngineGauge.KV_USAGE_RATIO: 0.1}


def test_slots_of_a_unified_cache_share_one_capacity(make_deployment: MakeDeployment) -> None:
    deployment = make_deployment("llamacpp", weights="file:/w", args={"kv-unified": True})
    body = msgspec.json.encode([slot(1000, True, 300), slot(1000, True, 200)])
    assert DRIVER.read_state(deployment, body) == {EngineGauge.KV_USAGE_RATIO: 0.5}


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"error": {"code": 501}}', b'[{"n_ctx": "x"}]', b"[{}]"])
def test_a_page_of_another_shape_gives_no_gauge(make_deployment: MakeDeployment, body: bytes) -> None:
    assert DRIVER.read_state(make_deployment("llamacpp", weights="file:/w"), body) == {}
