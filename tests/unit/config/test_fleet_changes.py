from collections.abc import Callable

from pilothouse.config.changes import changes
from pilothouse.config.loaded import LoadedFleet

Load = Callable[..., LoadedFleet]

SOURCE = "pypi:tiny==1.0/tiny/tiny.gguf"


def deployment(**keys: str) -> str:
    parts = {"name": "d", "engine": "llamacpp", "weights": f'"{SOURCE}"', **keys}
    return "models: {a: {deployments: [{" + ", ".join(f"{key}: {value}" for key, value in parts.items()) + "}]}}\n"


def test_the_same_fleet_has_no_changes(load_text: Load) -> None:
    assert changes(load_text(deployment()).spec, load_text("# again\n" + deployment()).spec) == ()


def test_deployments_come_and_go(load_text: Load) -> None:
    old = load_text(f"models: {{a: '{SOURCE}', b: '{SOURCE}'}}").spec
    new = load_text(f"models: {{a: '{SOURCE}', c: {{deployments: [{{engine: fake, replicas: 2}}]}}}}").spec
    assert changes(old, new) == (
        "- deployment b-llamacpp of model b",
        "+ deployment c-fake of model c: fake, 2 replicas",
    )
    assert changes(new, old)[1] == "+ deployment b-llamacpp of model b: llamacpp, 1 replica"


def test_each_difference_of_a_deployment_is_a_line(load_text: Load) -> None:
    old = load_text(deployment(engine="{name: llamacpp, args: {ctx-size: 4096, flag: 1}}")).spec
    new = load_text(
        deployment(
            engine="{name: llamacpp, version: '2', args: {ctx-size: 8192, flag: true, more: [1]}}",
            weights="{source: 'file:/x.gguf', sha256: " + "a" * 64 + "}",
            replicas="3",
        )
    ).spec
    assert changes(old, new) == (
        "~ d: engine.version (not set) -> 2",
        "~ d: replicas 1 -> 3",
        "~ d: engine.args.ctx-size 4096 -> 8192",
        "~ d: engine.args.flag 1 -> true",
        f"~ d: weights {SOURCE} -> file:/x.gguf",
        f"~ d: weights.sha256 (not set) -> {'a' * 64}",
        "~ d: engine.args.more (not set) -> [1]",
    )


def test_a_deployment_may_move_to_another_model(load_text: Load) -> None:
    old = load_text(deployment()).spec
    new = load_text(deployment().replace("{a:", "{b:")).spec
    assert changes(old, new) == ("~ d: model a -> b",)


def test_time_outs_of_routes_and_models_are_named(load_text: Load) -> None:
    old = load_text(deployment() + "gateway: {timeouts: {/v1/embeddings: {total_s: 5}}}\n").spec
    new = load_text(deployment().replace("{a: {", "{a: {timeouts: {idle_s: 7}, ")).spec
    assert changes(old, new) == (
        "~ gateway.timeouts./v1/embeddings.total_s 5.0 -> (not set)",
        "~ models.a.timeouts.idle_s (not set) -> 7.0",
    )


def test_secrets_are_said_to_differ_and_never_shown(load_text: Load) -> None:
    text = deployment(engine="openai", upstream="{url: 'https://h/', api_key: '${env:KEY}'}")
    old, new = load_text(text, env={"KEY": "hunter1"}).spec, load_text(text, env={"KEY": "hunter2"}).spec
    assert changes(old, new) == ("~ d: upstream.api_key changed",)
    without = load_text(deployment(engine="openai", upstream="'https://h/'")).spec
    assert changes(old, without) == ("~ d: upstream.api_key changed",)


def test_settings_that_need_a_new_start_say_so(load_text: Load) -> None:
    old = load_text(deployment()).spec
    new = load_text(
        "fleet: other\n" + deployment() + "gateway: {listen: '127.0.0.1:1', workers: 2, limits: {max_head_bytes: 9}}\n"
        "controller: {listen: '127.0.0.1:2'}\n"
    ).spec
    later, restart = " (takes effect when the fleet is started again)", " (takes effect with `pilothouse restart`)"
    assert changes(old, new) == (
        f"~ fleet default -> other{later}",
        f"~ gateway.listen 127.0.0.1:8080 -> 127.0.0.1:1{later}",
        f"~ gateway.workers 1 -> 2{restart}",
        f"~ gateway.limits.max_head_bytes 32768 -> 9{restart}",
        f"~ controller.listen 127.0.0.1:8081 -> 127.0.0.1:2{later}",
    )
