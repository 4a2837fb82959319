import pytest

from pilothouse.config.settings import Override, apply_overrides, read_overrides, settings


def found(command_line: dict[str, str], env: dict[str, str]) -> dict[str, tuple[object, str]]:
    overrides = read_overrides(command_line, env)
    assert overrides.problems == ()
    return {".".join(each.path): (each.value, each.origin) for each in overrides.found}


def test_the_settings_are_the_single_values_outside_of_models() -> None:
    variables = {setting.variable: setting.key for setting in settings()}
    assert variables["PILOTHOUSE_FLEET"] == "fleet"
    assert variables["PILOTHOUSE_GATEWAY_LISTEN"] == "gateway.listen"
    assert variables["PILOTHOUSE_GATEWAY_WORKERS"] == "gateway.workers"
    assert variables["PILOTHOUSE_GATEWAY_LIMITS_MAX_BODY_BYTES"] == "gateway.limits.max_body_bytes"
    assert variables["PILOTHOUSE_CONTROLLER_LISTEN"] == "controller.listen"
    assert variables["PILOTHOUSE_SIMULATE_WORKLOAD_RATE_PER_S"] == "simulate.workload.rate_per_s"
    assert len(variables) == len(settings()) == 50


def test_values_take_the_type_of_their_setting() -> None:
    env = {
        "PILOTHOUSE_FLEET": "7",
        "PILOTHOUSE_GATEWAY_WORKERS": "2",
        "PILOTHOUSE_GATEWAY_LIMITS_IDLE_TIMEOUT_S": "3",
        "PILOTHOUSE_GATEWAY_LIMITS_HEAD_TIMEOUT_S": "1.5",
    }
    values = {key: value for key, (value, _) in found({}, env).items()}
    assert values == {
        "fleet": "7",
        "gateway.workers": 2,
        "gateway.limits.idle_timeout_s": 3,
        "gateway.limits.head_timeout_s": 1.5,
    }


@pytest.mark.parametrize("text", ["two", "true", "2.5", "", "1_0", "null", "\uff12"])
def test_a_value_of_the_wrong_type_stays_a_text_for_the_schema_to_refuse(text: str) -> None:
    assert found({"gateway.workers": text}, {})["gateway.workers"][0] == text


def test_the_command_line_is_stronger_than_the_environment() -> None:
    env = {"PILOTHOUSE_GATEWAY_WORKERS": "2"}
    assert found({}, env) == {"gateway.workers": (2, "environment PILOTHOUSE_GATEWAY_WORKERS")}
    assert found({"gateway.workers": "3"}, env) == {"gateway.workers": (3, "command line")}


def test_an_empty_variable_is_not_set() -> None:
    assert found({}, {"PILOTHOUSE_GATEWAY_WORKERS": ""}) == {}


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [("gateway.worker", "gateway.workers"), ("gateway", None), ("models.a.replicas", None), ("", None), ("..", None)],
)
def test_an_unknown_key_is_a_problem(key: str, suggestion: str | None) -> None:
    (problem,) = read_overrides({key: "1"}, {}).problems
    assert problem.origin == "command line"
    if suggestion:
        assert problem.suggestion == suggestion


def test_variables_that_look_like_settings_are_warned_of_and_others_are_none_of_our_business() -> None:
    env = {
        "PILOTHOUSE_GATEWAY_WORKER": "2",
        "PILOTHOUSE_GATEWAY_SERVICE_HOST": "10.0.0.1",
        "PILOTHOUSE_API_KEY": "ph_x",
        "PILOTHOUSE_DEBUG": "1",
        "PATH": "/bin",
    }
    overrides = read_overrides({}, env)
    assert overrides.found == ()
    assert overrides.problems == ()
    assert overrides.warnings == (
        "PILOTHOUSE_GATEWAY_SERVICE_HOST is not a setting",
        "PILOTHOUSE_GATEWAY_WORKER is not a setting (did you mean PILOTHOUSE_GATEWAY_WORKERS?)",
    )


def test_overrides_go_into_a_copy() -> None:
    tree = {"gateway": {"workers": 1}, "models": {}}
    overrides = (
        Override(path=("gateway", "workers"), value=2, origin="x"),
        Override(path=("gateway", "limits", "max_body_bytes"), value=9, origin="x"),
        Override(path=("controller", "listen"), value="h:1", origin="x"),
    )
    assert apply_overrides(tree, overrides) == {
        "gateway": {"workers": 2, "limits": {"max_body_bytes": 9}},
        "models": {},
        "controller": {"listen": "h:1"},
    }
    assert tree == {"gateway": {"workers": 1}, "models": {}}


def test_a_mistake_in_the_file_is_not_covered_up() -> None:
    override = Override(path=("gateway", "workers"), value=2, origin="x")
    assert apply_overrides({"gateway": 5}, (override,)) == {"gateway": 5}
