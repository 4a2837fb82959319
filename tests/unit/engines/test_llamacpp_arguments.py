from typing import Any

import pytest

from pilothouse.engines.llamacpp_arguments import ARGUMENTS, REFUSED, Kind, apply_arguments, check_arguments

EXAMPLES: dict[Kind, Any] = {
    Kind.INTEGER: 1,
    Kind.NUMBER: 0.5,
    Kind.BOOLEAN: True,
    Kind.TEXT: "chatml",
    Kind.NUMBERS: [0.75, 0.25],
}


def example_of(name: str) -> Any:
    argument = ARGUMENTS[name]
    return next(iter(argument.choices)) if argument.choices else EXAMPLES[argument.kind]


def test_every_argument_takes_a_value_of_its_kind() -> None:
    assert check_arguments({name: example_of(name) for name in ARGUMENTS}) == []


@pytest.mark.parametrize(
    ("arguments", "message", "suggestion"),
    [
        ({"ctx-sise": 1}, "not an argument of llama.cpp that can be set here", "ctx-size"),
        ({"ctx_size": 1}, "not an argument of llama.cpp that can be set here", "ctx-size"),
        ({"--ctx-size": 1}, "not an argument of llama.cpp that can be set here", "ctx-size"),
        ({"qqqq": 1}, "not an argument of llama.cpp that can be set here", None),
        ({"ctx-size": "4096"}, "must be a whole number, not '4096'", None),
        ({"ctx-size": True}, "must be a whole number, not True", None),
        ({"ctx-size": 1.0}, "must be a whole number, not 1.0", None),
        ({"ctx-size": None}, "must be a whole number, not None", None),
        ({"parallel": 0}, "must be at least 1", None),
        ({"parallel": -1}, "must be at least 1", None),
        ({"temp": float("inf")}, "must be a number, not inf", None),
        ({"top-p": 1.1}, "must be at most 1", None),
        ({"warmup": "yes"}, "must be true or false, not 'yes'", None),
        ({"chat-template": 3}, "must be a text, not 3", None),
        ({"tensor-split": [1, "a"]}, "must be a list of numbers, not [1, 'a']", None),
        ({"tensor-split": [1, -1]}, "must be at least 0", None),
        ({"flash-attn": "onn"}, "must be one of on, off, auto", "on"),
        ({"flash-attn": ["on"]}, "must be one of on, off, auto", None),
        ({"flash-attn": True}, "must be one of on, off, auto", None),
        ({"no-warmup": False}, "must be true, or left out", None),
        ({"no-ctx-size": True}, "not an argument of llama.cpp that can be set here", "ctx-size"),
        ({"verbosity": 4}, "must be at most 3", None),
    ],
)
def test_what_llamacpp_would_not_take_is_named(arguments: dict[str, Any], message: str, suggestion: str | None) -> None:
    (problem,) = check_arguments(arguments)
    assert problem.path == ("engine", "args", next(iter(arguments)))
    assert problem.message == message
    assert problem.suggestion == suggestion


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_pilothouse_sets_or_forbids_is_refused_with_the_reason(name: str) -> None:
    (problem,) = check_arguments({name: "anything"})
    assert problem.message == REFUSED[name]


def test_an_argument_and_its_negation_contradict_each_other() -> None:
    (problem,) = check_arguments({"warmup": True, "no-warmup": True})
    assert problem.path == ("engine", "args", "no-warmup")
    assert problem.message == "contradicts warmup"


@pytest.mark.engine
def test_the_table_fits_the_engine_that_is_installed() -> None:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    apply_arguments(parameters, {name: example_of(name) for name in ARGUMENTS}, xllamacpp)
    assert parameters.n_ctx == 1
    assert parameters.cpuparams.n_threads == 1
    assert parameters.sampling.temp == 0.5
    assert parameters.chat_template == "chatml"
    assert parameters.tensor_split[:3] == [0.75, 0.25, 0.0]
    assert parameters.cache_type_k == xllamacpp.ggml_type.GGML_TYPE_F32


@pytest.mark.engine
def test_every_choice_is_one_of_the_engines() -> None:
    import xllamacpp

    for name, argument in ARGUMENTS.items():
        for choice in argument.choices:
            apply_arguments(xllamacpp.CommonParams(), {name: choice}, xllamacpp)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("arguments", "attribute", "value"),
    [
        ({"warmup": False}, "warmup", False),
        ({"no-warmup": True}, "warmup", False),
        ({"kv-offload": True}, "no_kv_offload", False),
        ({"no-kv-offload": True}, "no_kv_offload", True),
        ({"embeddings": True}, "embedding", True),
    ],
)
def test_negations_reach_the_engine_the_right_way_round(arguments: dict[str, Any], attribute: str, value: bool) -> None:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    apply_arguments(parameters, arguments, xllamacpp)
    assert getattr(parameters, attribute) is value
