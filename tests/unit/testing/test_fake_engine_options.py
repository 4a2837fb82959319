"""The fake engine's options, and its command line."""

from pathlib import Path

import pytest

from pilothouse.engines.base import REPLICA_KEY_VARIABLE
from pilothouse.testing.fake_engine.command import parse, parser
from pilothouse.testing.fake_engine.options import EngineOptions
from pilothouse.testing.fake_engine.scripts import Script


def test_the_command_line_without_arguments_is_the_defaults_on_a_fixed_port() -> None:
    assert parse([], {}) == EngineOptions(port=8000)


def test_options_by_flags_values_and_environment() -> None:
    options = parse(
        [
            "--host=127.0.0.2", "--port", "0", "--served-model-name", "a", "b", "--kv-blocks=64", "--scriptable",
            "--zero-latency", "false", "--no-enable-prefix-caching", "--time-scale", "0.5",
            "--script", '{"stall_after": 5}',
        ],
        {REPLICA_KEY_VARIABLE: "secret"},
    )  # fmt: skip
    assert options == EngineOptions(
        host="127.0.0.2",
        served_model_names=("a", "b"),
        kv_blocks=64,
        scriptable=True,
        enable_prefix_caching=False,
        time_scale=0.5,
        script=Script(stall_after=5),
        api_key="secret",
    )
    assert options.context_tokens == 1024


def test_an_empty_key_is_no_key() -> None:
    assert parse([], {REPLICA_KEY_VARIABLE: ""}).api_key is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kv-block=3"], "unrecognized arguments: --kv-block=3"),
        (["--max-model-len=100", "--kv-blocks=2"], "--kv-blocks x --block-size = 32 tokens must hold one request"),
        (["--max-num-seqs=9000"], "--max-num-batched-tokens = 8192 must not be less than --max-num-seqs = 9000"),
        (["--time-scale=0"], "--time-scale must be greater than 0"),
        (["--port=70000"], "--port must be at most 65535"),
        (["--step-base-ms=-1"], "--step-base-ms must be at least 0"),
        (["--served-model-name="], "--served-model-name must hold at least one name"),
        (["--output-tokens-min=9", "--output-tokens-max=8"], "--output-tokens-max must not be less"),
        (["--kv-events-replay-endpoint=ipc://x"], "--kv-events-replay-endpoint needs --kv-events-endpoint"),
        (["--zero-latency", "--kv-events-endpoint=ipc://x"], "--zero-latency has no KV cache"),
        (["--zero-latency=maybe"], "'maybe' is neither true nor false"),
        (["--script={"], "not a script"),
        (["--kv-blocks=many"], "invalid int value"),
    ],
)
def test_bad_options_end_with_code_2_and_a_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments, {})
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"port must be .*; time_scale must be"):
        EngineOptions(port=-1, time_scale=0)


def test_every_option_of_the_engine_is_on_the_command_line() -> None:
    names = {action.dest for action in parser()._actions}
    fields = set(EngineOptions.__struct_fields__) - {"api_key", "served_model_names"}
    assert fields <= names


def test_the_help_leads_to_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--help"], {}, "pilothouse fake-engine")
    assert ended.value.code == 0
    assert "pilothouse fake-engine --port 8000 --served-model-name my-model" in capsys.readouterr().out


def test_the_reference_names_every_option_and_every_field_of_a_script() -> None:
    reference = Path(__file__).parents[3].joinpath("docs/reference/fake-engine.md").read_text()
    options = {option for action in parser()._actions for option in action.option_strings if option.startswith("--")}
    assert [option for option in options - {"--help"} if f"`{option}`" not in reference] == []
    assert [field for field in Script.__struct_fields__ if f"`{field}`" not in reference] == []
