"""llama.cpp's arguments under its own long names, and where each one goes in xllamacpp's `CommonParams`.

One table serves the check of a fleet file (without the engine installed) and the process that hosts the engine. A
boolean may also be given as `no-NAME: true`, as on llama.cpp's command line. Names that Pilothouse sets for every
replica, and those that would open a door in it, are refused with the reason.
"""

import enum
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from pilothouse.config.problems import Problem, nearest_name


class Kind(enum.StrEnum):
    """The type of an argument's value, in the words of a message."""

    INTEGER = "a whole number"
    NUMBER = "a number"
    BOOLEAN = "true or false"
    TEXT = "a text"
    NUMBERS = "a list of numbers"


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument. `attribute` is a dotted path in `CommonParams`.

    `choices` maps the words llama.cpp takes to members of xllamacpp's enumerations, as `enumeration.MEMBER`.
    """

    attribute: str
    kind: Kind = Kind.TEXT
    minimum: float | None = None
    maximum: float | None = None
    choices: Mapping[str, str] = {}


def _integer(attribute: str, minimum: int = 0, maximum: int | None = None) -> Argument:
    return Argument(attribute=attribute, kind=Kind.INTEGER, minimum=minimum, maximum=maximum)


def _number(attribute: str, minimum: float | None = None, maximum: float | None = None) -> Argument:
    return Argument(attribute=attribute, kind=Kind.NUMBER, minimum=minimum, maximum=maximum)


def _boolean(attribute: str) -> Argument:
    return Argument(attribute=attribute, kind=Kind.BOOLEAN)


def _text(attribute: str) -> Argument:
    return Argument(attribute=attribute, kind=Kind.TEXT)


def _choice(attribute: str, enumeration: str, prefix: str, words: tuple[str, ...]) -> Argument:
    members = {word: f"{enumeration}.{prefix}{word.upper().replace('-', '_')}" for word in words}
    return Argument(attribute=attribute, choices=members)


_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
_MAX_VERBOSITY = 3
"""Above 3 ("info") llama.cpp writes prompts to its log."""

ARGUMENTS: Mapping[str, Argument] = MappingProxyType(
    {
        # Context and batching.
        "ctx-size": _integer("n_ctx"),
        "parallel": _integer("n_parallel", minimum=1),
        "batch-size": _integer("n_batch", minimum=1),
        "ubatch-size": _integer("n_ubatch", minimum=1),
        "predict": _integer("n_predict", minimum=-1),
        "keep": _integer("n_keep", minimum=-1),
        "cont-batching": _boolean("cont_batching"),
        "context-shift": _boolean("ctx_shift"),
        "kv-unified": _boolean("kv_unified"),
        "swa-full": _boolean("swa_full"),
        # Threads.
        "threads": _integer("cpuparams.n_threads", minimum=1),
        "threads-batch": _integer("cpuparams_batch.n_threads", minimum=1),
        "threads-http": _integer("n_threads_http", minimum=1),
        "poll": _integer("cpuparams.poll", maximum=100),
        "numa": _choice("numa", "ggml_numa_strategy", "GGML_NUMA_STRATEGY_", ("distribute", "isolate", "numactl")),
        # Caches.
        "cache-prompt": _boolean("cache_prompt"),
        "cache-reuse": _integer("n_cache_reuse"),
        "cache-ram": _integer("cache_ram_mib"),
        "cache-idle-slots": _boolean("cache_idle_slots"),
        "cache-type-k": _choice("cache_type_k", "ggml_type", "GGML_TYPE_", _CACHE_TYPES),
        "cache-type-v": _choice("cache_type_v", "ggml_type", "GGML_TYPE_", _CACHE_TYPES),
        "ctx-checkpoints": _integer("n_ctx_checkpoints"),
        "slot-prompt-similarity": _number("slot_prompt_similarity", 0, 1),
        # Where the layers are.
        "n-gpu-layers": _integer("n_gpu_layers", minimum=-1),
        "main-gpu": _integer("main_gpu"),
        "tensor-split": Argument(attribute="tensor_split", kind=Kind.NUMBERS, minimum=0),
        "split-mode": _choice(
            "split_mode", "llama_split_mode", "LLAMA_SPLIT_MODE_", ("none", "layer", "row", "tensor")
        ),
        "kv-offload": Argument(attribute="no_kv_offload", kind=Kind.BOOLEAN),
        "fit": _boolean("fit_params"),
        "load-mode": _choice(
            "load_mode",
            "llama_load_mode",
            "LLAMA_LOAD_MODE_",
            ("auto", "none", "mmap", "mlock", "mmap-mlock", "direct-io"),
        ),
        "check-tensors": _boolean("check_tensors"),
        "warmup": _boolean("warmup"),
        "flash-attn": Argument(
            attribute="flash_attn_type",
            choices={
                "on": "llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED",
                "off": "llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED",
                "auto": "llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO",
            },
        ),
        # What it serves.
        "embeddings": _boolean("embedding"),
        "pooling": _choice(
            "pooling_type", "llama_pooling_type", "LLAMA_POOLING_TYPE_", ("none", "mean", "cls", "last", "rank")
        ),
        "embd-normalize": _integer("embd_normalize", minimum=-1),
        "jinja": _boolean("use_jinja"),
        "chat-template": _text("chat_template"),
        "reasoning-format": _choice(
            "reasoning_format",
            "common_reasoning_format",
            "COMMON_REASONING_FORMAT_",
            ("none", "auto", "deepseek", "deepseek-legacy"),
        ),
        "prefill-assistant": _boolean("prefill_assistant"),
        "special": _boolean("special"),
        # Position encoding.
        "rope-scaling": _choice(
            "rope_scaling_type", "llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_", ("none", "linear", "yarn")
        ),
        "rope-freq-base": _number("rope_freq_base", 0),
        "rope-freq-scale": _number("rope_freq_scale", 0),
        "yarn-orig-ctx": _integer("yarn_orig_ctx"),
        "yarn-ext-factor": _number("yarn_ext_factor"),
        "yarn-attn-factor": _number("yarn_attn_factor"),
        "yarn-beta-fast": _number("yarn_beta_fast"),
        "yarn-beta-slow": _number("yarn_beta_slow"),
        # Sampling where the client says nothing.
        "temp": _number("sampling.temp", 0),
        "top-k": _integer("sampling.top_k"),
        "top-p": _number("sampling.top_p", 0, 1),
        "min-p": _number("sampling.min_p", 0, 1),
        "repeat-penalty": _number("sampling.penalty_repeat", 0),
        "presence-penalty": _number("sampling.penalty_present"),
        "frequency-penalty": _number("sampling.penalty_freq"),
        "seed": _integer("sampling.seed", maximum=2**32 - 1),
        # The server.
        "sse-ping-interval": _integer("sse_ping_interval", minimum=-1),
        "verbosity": _integer("verbosity", maximum=_MAX_VERBOSITY),
    }
)

_NEGATED_ATTRIBUTES = frozenset({"no_kv_offload"})
"""Attributes that say the opposite of the argument's name."""

_SET_BY_US = "is set by Pilothouse for every replica"
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("model", "alias", "host", "port", "api-key", "metrics", "slots"), _SET_BY_US),
        "api-key-file": "each replica has a key of its own, made by Pilothouse",
        "hf-repo": "weights are pinned by weights.source",
        "model-url": "weights are pinned by weights.source",
        "props": "would let requests change the replica's settings",
        "ui": "would serve pages beside the API",
        "webui": "would serve pages beside the API",
        "tools": "would let requests act on the host",
        "rpc": "listens without authentication",
        "slot-save-path": "would let requests write files on the host",
        "media-path": "would let requests read files on the host",
        "sleep-idle-seconds": "a replica that unloads itself would look ready and not be",
    }
)


def check_arguments(arguments: Mapping[str, Any]) -> list[Problem]:
    """What llama.cpp would not take; paths begin with `engine`, `args`."""
    return [
        Problem(path=("engine", "args", name), message=message, suggestion=suggestion)
        for name, value in arguments.items()
        for message, suggestion in _objections(name, value)
    ] + [
        Problem(path=("engine", "args", f"no-{name}"), message=f"contradicts {name}")
        for name in arguments
        if f"no-{name}" in arguments
    ]


def _objections(name: str, value: Any) -> list[tuple[str, str | None]]:
    positive, negated = _positive_name(name)
    if positive in REFUSED:
        return [(REFUSED[positive], None)]
    argument = ARGUMENTS.get(positive)
    if argument is None:
        underscored = name.replace("_", "-").lstrip("-")
        known = underscored if underscored in ARGUMENTS else nearest_name(underscored, ARGUMENTS)
        return [("not an argument of llama.cpp that can be set here", known)]
    if negated and value is not True:
        return [("must be true, or left out", None)]
    message = _value_objection(argument, value)
    suggestion = nearest_name(str(value), argument.choices) if message and argument.choices else None
    return [(message, suggestion)] if message else []


def _positive_name(name: str) -> tuple[str, bool]:
    """The name without `no-` where that negates a boolean, and whether it did."""
    positive = name.removeprefix("no-")
    known = ARGUMENTS.get(positive)
    negated = positive != name and known is not None and known.kind is Kind.BOOLEAN
    return (positive, True) if negated else (name, False)


def _value_objection(argument: Argument, value: Any) -> str | None:
    if argument.choices:
        return (
            None
            if type(value) is str and value in argument.choices
            else f"must be one of {', '.join(argument.choices)}"
        )
    match argument.kind:
        case Kind.INTEGER:
            fits = type(value) is int
        case Kind.NUMBER:
            fits = _is_number(value)
        case Kind.BOOLEAN:
            fits = type(value) is bool
        case Kind.TEXT:
            fits = type(value) is str
        case Kind.NUMBERS:
            fits = isinstance(value, list | tuple) and all(map(_is_number, value))
    if not fits:
        return f"must be {argument.kind.value}, not {value!r}"
    numbers = value if argument.kind is Kind.NUMBERS else [value] if _is_number(value) else []
    if argument.minimum is not None and any(number < argument.minimum for number in numbers):
        return f"must be at least {argument.minimum:g}"
    if argument.maximum is not None and any(number > argument.maximum for number in numbers):
        return f"must be at most {argument.maximum:g}"
    return None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def apply_arguments(parameters: Any, arguments: Mapping[str, Any], xllamacpp: Any) -> None:
    """Set checked arguments on a `CommonParams`. `xllamacpp` is the module, for its enumerations."""
    for name, value in arguments.items():
        positive, negated = _positive_name(name)
        argument = ARGUMENTS[positive]
        *parents, attribute = argument.attribute.split(".")
        owner = parameters
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, attribute, _native_value(argument, attribute, value, negated, xllamacpp, owner))


def _native_value(argument: Argument, attribute: str, value: Any, negated: bool, xllamacpp: Any, owner: Any) -> Any:
    if argument.choices:
        enumeration, _, member = argument.choices[value].partition(".")
        return getattr(getattr(xllamacpp, enumeration), member)
    if argument.kind is Kind.BOOLEAN:
        return (value != negated) != (attribute in _NEGATED_ATTRIBUTES)
    if argument.kind is Kind.NUMBER:
        return float(value)
    if argument.kind is Kind.NUMBERS:
        # The engine reads a fixed number of devices: the rest keep their share of nothing.
        shares = [float(each) for each in value]
        return shares + [0.0] * (len(getattr(owner, attribute)) - len(shares))
    return value
