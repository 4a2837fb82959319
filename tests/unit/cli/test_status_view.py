import msgspec
import pytest
from rich.console import Console

from pilothouse.cli.status import details, duration, headline, replica_table
from pilothouse.model.fleet import ReplicaState
from pilothouse.model.ids import DeploymentName, FleetName, ModelName, ReplicaId
from pilothouse.model.posture import Outcome
from pilothouse.model.status import FleetStatus, PostureStatus, ReplicaStatus, WorkerStatus


def replica(
    index: int,
    state: ReplicaState,
    *,
    detail: str = "",
    kv_usage_ratio: float | None = None,
    log_tail: tuple[str, ...] = (),
) -> ReplicaStatus:
    return ReplicaStatus(
        id=ReplicaId(f"smollm2-{index}"),
        model=ModelName("smollm2"),
        deployment=DeploymentName("smollm2"),
        engine="llamacpp",
        state=state,
        detail=detail,
        uptime_s=187.2,
        kv_usage_ratio=kv_usage_ratio,
        pid=41,
        log_tail=log_tail,
    )


def fleet(*replicas: ReplicaStatus) -> FleetStatus:
    return FleetStatus(
        fleet=FleetName("default"),
        version="0.1.0",
        gateway="127.0.0.1:8080",
        admin="127.0.0.1:8081",
        fleet_file=None,
        ready=all(each.state is ReplicaState.READY for each in replicas),
        snapshot_version=3,
        workers=(WorkerStatus(index=0, pid=40, snapshot_version=3),),
        replicas=replicas,
    )


def rendered(found: FleetStatus) -> str:
    console = Console(width=200, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(headline(found))
        console.print(replica_table(found.replicas))
    return capture.get() + "\n".join(details(found))


def test_a_ready_fleet() -> None:
    text = rendered(fleet(replica(0, ReplicaState.READY, kv_usage_ratio=0.256)))
    assert "fleet default: ready" in text
    assert "gateway 127.0.0.1:8080 (1 worker), admin 127.0.0.1:8081, file built-in" in text
    assert "26%" in text
    assert "3m07s" in text


def test_a_fleet_that_is_not_ready_says_how_far_it_is_and_why() -> None:
    found = fleet(
        replica(0, ReplicaState.READY),
        replica(1, ReplicaState.FAILED, detail="exit code 1 [red]bad[/]\x1b[2J", log_tail=("no \x1b[1mmodel",)),
    )
    text = rendered(found)
    assert "1 of 2 replicas ready" in text
    assert "smollm2-1: exit code 1 [red]bad[/]\n  no model" in text
    assert "\x1b" not in text


def test_what_advisories_take_away() -> None:
    denied = PostureStatus(
        deployment=DeploymentName("smollm2"), outcome=Outcome.DENIED, headline="denied; x 1", reasons=("denies CVE-1",)
    )
    found = msgspec.structs.replace(fleet(replica(0, ReplicaState.READY)), ready=False, postures=(denied,))
    text = rendered(found)
    assert "1 of 1 replicas ready, quarantined: smollm2" in text
    assert "posture of smollm2: denied; x 1\n  denies CVE-1" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0s"), (59, "59s"), (60, "1m00s"), (3599, "59m59s"), (18720, "5h12m"), (792000, "9d04h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
