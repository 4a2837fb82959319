"""llama.cpp, in a process of ours that hosts the server inside the `xllamacpp` package."""

import importlib.metadata
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from pilothouse.config.problems import Problem
from pilothouse.engines import reserved
from pilothouse.engines.base import REPLICA_KEY_VARIABLE, Driver, EngineGauge, LaunchLine, ProbeSpec
from pilothouse.engines.gguf import read_shape
from pilothouse.engines.launch_features import LLAMACPP_FEATURES, FeatureRule
from pilothouse.engines.llamacpp_arguments import check_arguments
from pilothouse.engines.llamacpp_host import HostOptions
from pilothouse.model.fleet import Capacity, Endpoint
from pilothouse.model.requests import Route
from pilothouse.model.spec import DeploymentSpec

_PACKAGE_VERSION = re.compile(r"20\d\d\.\d{1,2}\.(?P<build>\d{4,9})(\.\d+)?", re.ASCII)  # year, month, build
_PARALLEL = 4  # slots; as llama.cpp's own server chooses when it is left to itself
_CONTEXT_PER_SLOT = 4096  # tokens; a chat of a few turns, and llama.cpp's own least context when it fits memory
_BATCH = 64  # tokens; see LlamaCppDriver
_CACHE_RAM_MIB = 512  # llama.cpp's own 8192 for every replica would fill a small host with cached prompts
_OVERHEAD_BYTES = 128 * 1024 * 1024  # the interpreter, compute buffers and the server, measured at about half of it
_CACHE_BYTES_PER_VALUE: Mapping[str, float] = MappingProxyType(
    {
        "f32": 4.0,
        "f16": 2.0,
        "bf16": 2.0,
        # Blocks of 32 values with their scales, from ggml-common.h.
        "q8_0": 34 / 32,
        "q5_1": 24 / 32,
        "q5_0": 22 / 32,
        "q4_1": 20 / 32,
        "q4_0": 18 / 32,
        "iq4_nl": 18 / 32,
    }
)


class _Slot(msgspec.Struct):
    """A slot as /slots shows it; `n_prompt_tokens` grows with every token that is generated."""

    n_ctx: int
    is_processing: bool
    n_prompt_tokens: int = 0


class LlamaCppDriver(Driver):
    """`engine: llamacpp` with weights in GGUF. `engine.args` are llama.cpp's own long names.

    llama.cpp shows no gauge of its cache, so its use is read from /slots: tokens of the slots at work over the tokens
    all slots can hold. What an idle slot keeps for a later prompt is not counted: it gives way at once.

    llama.cpp looks whether its client is still there once a second, and on a busy server never: any other request's
    result starts that second anew (`server_response::recv_with_timeout`). It does notice when it writes, so it is made
    to write after every batch of a prompt and every token. A batch is therefore small: 64 tokens take 0.5 s on one core
    with a model of 135M parameters, and cost 6 % of the speed of prompts. A GPU wants `batch-size: 2048`.
    """

    name: ClassVar[str] = "llamacpp"
    install_hint: ClassVar[str | None] = "Run `pip install 'pilothouse[llamacpp]'` in the same Python environment."
    reserved_headers: ClassVar[tuple[str, ...]] = tuple(reserved.LLAMACPP_HEADERS)
    reserved_fields: ClassVar[tuple[str, ...]] = tuple(reserved.LLAMACPP_FIELDS)
    readiness: ClassVar[ProbeSpec] = ProbeSpec(path="/health", ready=frozenset({200}), loading=frozenset({503}))
    metrics_path: ClassVar[str | None] = "/metrics"
    gauges: ClassVar[Mapping[str, EngineGauge]] = MappingProxyType(
        {
            "llamacpp:requests_processing": EngineGauge.REQUESTS_RUNNING,
            "llamacpp:requests_deferred": EngineGauge.REQUESTS_WAITING,
        }
    )
    state_path: ClassVar[str | None] = "/slots"
    advisory_package: ClassVar[str | None] = "llama.cpp"
    features: ClassVar[tuple[FeatureRule, ...]] = LLAMACPP_FEATURES
    progress_field: ClassVar[str | None] = "return_progress"

    def routes(self, deployment: DeploymentSpec) -> tuple[Route, ...]:
        """All that generate, and embeddings where `embeddings: true` turns them on."""
        generating = (Route.CHAT_COMPLETIONS, Route.COMPLETIONS, Route.RESPONSES, Route.MESSAGES)
        return (*generating, Route.EMBEDDINGS) if deployment.engine.args.get("embeddings") is True else generating

    def check(self, deployment: DeploymentSpec) -> list[Problem]:
        """The arguments against the table, and that there are weights."""
        problems = check_arguments(deployment.engine.args)
        if deployment.weights is None:
            problems.append(Problem(path=("weights",), message="the llamacpp engine needs weights in GGUF"))
        if deployment.upstream is not None:
            problems.append(
                Problem(
                    path=("upstream",),
                    message="the llamacpp engine is a process of this fleet; for a server of others use engine: openai",
                )
            )
        return problems

    def installed_version(self) -> str | None:
        """The version of the `xllamacpp` package."""
        try:
            return importlib.metadata.version("xllamacpp")
        except importlib.metadata.PackageNotFoundError:
            return None

    def advisory_version(self, deployment: DeploymentSpec) -> str | None:
        """The build of llama.cpp inside the package: the third part of its version, as in 2026.10.11549.

        A version of another form says nothing of the build; as it is, it counts as one that is not known.
        """
        version = super().advisory_version(deployment)
        found = None if version is None else _PACKAGE_VERSION.fullmatch(version)
        return version if found is None else found["build"]

    def endpoint(self, deployment: DeploymentSpec, *, host: str, port: int, api_key: str) -> Endpoint:
        """Where the process listens, with the key it was given."""
        return Endpoint(host=host, port=port, authorization=f"Bearer {api_key}")

    def launch(
        self, deployment: DeploymentSpec, *, host: str, port: int, api_key: str, weights: Path | None, threads: int
    ) -> LaunchLine:
        """The host process, with its options as one JSON argument."""
        if weights is None:
            raise ValueError(f"{deployment.name} has no weights")
        options = HostOptions(
            model=str(weights),
            alias=deployment.model,
            host=host,
            port=port,
            arguments={"threads": threads, **_defaults(deployment.engine.args), **deployment.engine.args},
        )
        return LaunchLine(
            argv=(
                sys.executable,
                "-P",
                "-m",
                "pilothouse.engines.llamacpp_host",
                msgspec.json.encode(options, order="deterministic").decode(),
            ),
            env={REPLICA_KEY_VARIABLE: api_key},
        )

    def memory_bytes(self, deployment: DeploymentSpec, weights: Path | None) -> int | None:
        """Weights, the whole cache (llama.cpp allots it at the start), the prompt cache's bound, and an overhead.

        The cache is read from the file's head; where that cannot be read, it counts as large as the weights.
        """
        if weights is None:
            return None
        size = weights.stat().st_size
        arguments = {**_defaults(deployment.engine.args), **deployment.engine.args}
        shape = read_shape(weights)
        cache = size
        if shape is not None:
            tokens = arguments["ctx-size"] or shape.context_length
            k_bytes = shape.k_values_per_token * _CACHE_BYTES_PER_VALUE[arguments.get("cache-type-k", "f16")]
            v_bytes = shape.v_values_per_token * _CACHE_BYTES_PER_VALUE[arguments.get("cache-type-v", "f16")]
            cache = round(tokens * (k_bytes + v_bytes))
        prompt_cache: int = arguments["cache-ram"] * 1024 * 1024
        return size + cache + prompt_cache + _OVERHEAD_BYTES

    def capacity(self, deployment: DeploymentSpec) -> Capacity | None:
        """Its slots, and the context they have together; `None` where the context is the model's own."""
        arguments = {**_defaults(deployment.engine.args), **deployment.engine.args}
        if not arguments.get("ctx-size") or "parallel" not in arguments:
            return None
        return Capacity(slots=arguments["parallel"], tokens=arguments["ctx-size"])

    def read_state(self, deployment: DeploymentSpec, body: bytes) -> Mapping[EngineGauge, float]:
        """The use of the cache, from the list of slots. With `kv-unified` each slot shows the whole cache as its."""
        try:
            slots = msgspec.json.decode(body, type=list[_Slot])
        except msgspec.DecodeError:
            return {}
        combine = max if deployment.engine.args.get("kv-unified") is True else sum
        capacity = combine([slot.n_ctx for slot in slots] or [0])
        if capacity <= 0:
            return {}
        used = sum(slot.n_prompt_tokens for slot in slots if slot.is_processing)
        return {EngineGauge.KV_USAGE_RATIO: min(1.0, used / capacity)}


def _defaults(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What llama.cpp is told where the fleet file says nothing.

    `fit` is off: it would fit the arguments to the free memory of the moment, and a deployment is pinned.
    """
    parallel = arguments.get("parallel", _PARALLEL)
    defaults = {
        "parallel": parallel,
        "ctx-size": parallel * _CONTEXT_PER_SLOT,
        "batch-size": max(_BATCH, parallel),
        "cache-ram": _CACHE_RAM_MIB,
        "fit": False,
    }
    return {name: value for name, value in defaults.items() if f"no-{name}" not in arguments}
