from collections.abc import Callable

import msgspec
import pytest

from pilothouse.config.paths import FleetPaths
from pilothouse.controller import snapshots
from pilothouse.controller.replica import PlacingProgress, Replica, index_of
from pilothouse.engines.registry import driver
from pilothouse.model.events import ReplicaAdopted, ReplicaRequested
from pilothouse.model.filters import Action, FilterSpec
from pilothouse.model.fleet import Endpoint, FleetSnapshot, ReplicaState
from pilothouse.model.ids import DeploymentName, FleetName, ModelName, ReplicaId
from pilothouse.model.requests import Route
from pilothouse.model.spec import DeploymentSpec, EngineSpec, FleetSpec, Timeouts, UpstreamSpec
from pilothouse.model.units import MonotonicNs

ENDPOINT = Endpoint(host="127.0.0.1", port=41873, authorization="Bearer secret")
CREATED = {ModelName("m"): 7, ModelName("n"): 8}


def pinned(name: str, model: str = "m", **args: object) -> DeploymentSpec:
    return DeploymentSpec(
        name=DeploymentName(name), model=ModelName(model), engine=EngineSpec(name="fake", args=args), replicas=1
    )


def replica(deployment: DeploymentSpec, index: int = 0) -> Replica:
    return Replica(deployment, driver(deployment.engine.name), index, FleetName("test"))


def build(spec: FleetSpec, *replicas: Replica) -> FleetSnapshot:
    return snapshots.build(spec, replicas, CREATED, lambda _: None, version=3)


def test_models_and_deployments_are_in_the_files_order_with_their_drivers_facts(
    fleet_of: Callable[..., FleetSpec],
) -> None:
    upstream = UpstreamSpec(url="http://127.0.0.1:1/v1", model="theirs")
    hosted = DeploymentSpec(
        name=DeploymentName("z"), model=ModelName("n"), engine=EngineSpec(name="openai"), replicas=1, upstream=upstream
    )
    made = build(fleet_of(hosted, pinned("b"), pinned("a")))
    assert (made.fleet, made.version) == ("test", 3)
    assert [(model.name, model.created) for model in made.models] == [("n", 8), ("m", 7)]
    assert [each.name for each in made.models[1].deployments] == ["b", "a"]
    view = made.models[0].deployments[0]
    assert (view.engine, view.served_model, view.reports_stream_usage) == ("openai", "theirs", True)
    assert Route.CHAT_COMPLETIONS in view.routes
    assert view.reserved_headers == driver("openai").reserved_headers
    assert view.reserved_fields == driver("openai").reserved_fields


def test_filters_go_to_the_workers(fleet_of: Callable[..., FleetSpec]) -> None:
    filters = (FilterSpec(name="x", output={"email": Action.BLOCK}, hash_key="k"),)
    made = build(msgspec.structs.replace(fleet_of(pinned("a")), filters=filters))
    assert msgspec.json.decode(msgspec.json.encode(made), type=FleetSnapshot).filters == filters


def test_a_models_time_outs_go_before_a_routes(fleet_of: Callable[..., FleetSpec]) -> None:
    spec = fleet_of(pinned("a"))
    gateway = msgspec.structs.replace(
        spec.gateway, timeouts={Route.EMBEDDINGS: Timeouts(total_s=5, idle_s=1), Route.RESPONSES: Timeouts(idle_s=9)}
    )
    model = msgspec.structs.replace(spec.models[0], timeouts=Timeouts(idle_s=7))
    plain = build(msgspec.structs.replace(spec, gateway=gateway)).models[0].timeouts
    assert plain == {Route.EMBEDDINGS: Timeouts(total_s=5, idle_s=1), Route.RESPONSES: Timeouts(idle_s=9)}
    made = build(msgspec.structs.replace(spec, gateway=gateway, models=(model,))).models[0].timeouts
    assert made[Route.EMBEDDINGS] == Timeouts(total_s=5, idle_s=7)
    assert {made[route] for route in Route if route is not Route.EMBEDDINGS} == {Timeouts(idle_s=7)}
    assert build(spec).models[0].timeouts == {}


def test_replicas_are_in_the_order_of_their_indices_and_only_serving_ones_have_an_endpoint(
    fleet_of: Callable[..., FleetSpec],
) -> None:
    ten, two = replica(pinned("a"), 10), replica(pinned("a"), 2)
    ten.endpoint = two.endpoint = ENDPOINT
    views = build(fleet_of(pinned("a")), ten, two).models[0].deployments[0].replicas
    assert [(view.id, view.state, view.endpoint) for view in views] == [
        ("a-2", ReplicaState.PENDING, None),
        ("a-10", ReplicaState.PENDING, None),
    ]


def test_while_it_is_replaced_old_replicas_are_a_view_of_their_own(fleet_of: Callable[..., FleetSpec]) -> None:
    new, old = pinned("a", seed=2), pinned("a", seed=1)
    made = build(fleet_of(new, pinned("b")), replica(old, 0), replica(new, 1))
    assert [(each.name, [view.id for view in each.replicas]) for each in made.models[0].deployments] == [
        ("a", ["a-1"]),
        ("b", []),
        ("a", ["a-0"]),
    ]


def test_what_is_ready_by_a_snapshot(fleet_of: Callable[..., FleetSpec]) -> None:
    one = replica(pinned("a"))
    one.machine.handle(ReplicaAdopted(at=MonotonicNs(0), pid=1, endpoint=ENDPOINT))
    made = build(fleet_of(pinned("a")), one)
    assert snapshots.ready_replicas(made) == set()
    assert made.models[0].deployments[0].replicas[0].state is ReplicaState.LOADING


def test_it_is_kept_on_disk_for_its_owner_alone(paths: FleetPaths, fleet_of: Callable[..., FleetSpec]) -> None:
    made = build(fleet_of(pinned("a")))
    assert snapshots.load(paths.snapshot, FleetName("test")) is None
    snapshots.save(paths.snapshot, made)
    assert snapshots.load(paths.snapshot, FleetName("test")) == made
    assert paths.snapshot.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b'{"fleet": 3}', b"\xff"])
def test_a_damaged_file_is_an_empty_snapshot_with_a_version_above_all(paths: FleetPaths, content: bytes) -> None:
    paths.snapshot.write_bytes(content)
    found = snapshots.load(paths.snapshot, FleetName("test"))
    assert found is not None
    assert found.models == ()
    assert found.version > 1_000_000_000


def test_a_disk_that_takes_nothing_is_told_and_survived(
    paths: FleetPaths, caplog: pytest.LogCaptureFixture, fleet_of: Callable[..., FleetSpec]
) -> None:
    paths.snapshot.mkdir()
    snapshots.save(paths.snapshot, build(fleet_of(pinned("a"))))
    assert "could not be written" in caplog.text


@pytest.mark.parametrize(
    ("replica_id", "index"),
    [
        ("a-0", 0),
        ("a-12", 12),
        ("a-01", None),
        ("a-x", None),
        ("a-", None),
        ("ab-0", None),
        ("a-1-0", None),
        ("a", None),
    ],
)
def test_the_index_in_a_replicas_id(replica_id: str, index: int | None) -> None:
    assert index_of(ReplicaId(replica_id), pinned("a")) == index


def test_an_alias_is_stable_and_tells_nothing() -> None:
    one, same, other = replica(pinned("a"), 0), replica(pinned("a", seed=2), 0), replica(pinned("a"), 1)
    assert one.view().alias == same.view().alias != other.view().alias
    assert "a-0" not in one.view().alias


def test_a_replica_says_whether_it_runs_what_is_pinned() -> None:
    one = replica(pinned("a"))
    scaled = msgspec.structs.replace(pinned("a"), replicas=5)
    assert one.present(scaled).current
    assert not one.present(pinned("a", seed=2)).current
    assert not one.present(None).current


def test_the_progress_of_its_weights_is_its_detail_while_it_is_placed() -> None:
    one = replica(pinned("a"))
    told: list[tuple[str, int, int | None]] = []

    class Sink:
        def update(self, phase: str, done: int, total: int | None) -> None:
            told.append((phase, done, total))

    progress = PlacingProgress(one, Sink())
    progress.update("download", 1, 2)
    assert one.detail == ""
    one.machine.handle(ReplicaRequested(at=MonotonicNs(0)))
    progress.update("download", 50 * 2**20, 200 * 2**20)
    assert one.detail == "download: 25% of 200 MiB"
    progress.update("unpack", 7 * 2**20, None)
    assert one.detail == "unpack: 7 MiB"
    progress.update("check", 0, 0)
    assert one.detail == "check: 0% of 0 MiB"
    assert told == [
        ("download", 1, 2),
        ("download", 50 * 2**20, 200 * 2**20),
        ("unpack", 7 * 2**20, None),
        ("check", 0, 0),
    ]
