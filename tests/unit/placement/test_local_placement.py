import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from pilothouse.config.paths import FleetPaths
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import ReplicaId
from pilothouse.model.spec import DeploymentSpec, WeightsSpec
from pilothouse.placement import host, local, process_records
from pilothouse.placement.local import LocalPlacement, RunningProcess, end_recorded_processes
from pilothouse.placement.processes import identify
from pilothouse.placement.weights import ProgressSink

Start = Callable[..., Awaitable[RunningProcess]]
A0, A1 = ReplicaId("a-0"), ReplicaId("a-1")

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
PARENT = "import subprocess, sys; c = subprocess.Popen(['sleep', '60']); print(c.pid, flush=True); "


async def until(condition: Callable[[], object]) -> None:
    """Wait for what no event tells."""
    async with asyncio.timeout(10):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def printed(placement: LocalPlacement, replica: ReplicaId = A0) -> str:
    """The first line that the replica has written."""
    await until(lambda: placement.log_tail(replica))
    return placement.log_tail(replica)[0]


async def exit_of(placement: LocalPlacement, process: RunningProcess) -> int | None:
    status: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    placement.on_exit(process.pid, status.set_result)
    async with asyncio.timeout(10):
        return await status


async def gone(pid: int) -> None:
    await until(lambda: identify(pid) is None)


@pytest.mark.asyncio
async def test_a_process_is_alone_in_its_session_and_gets_nothing_of_ours(
    placement: LocalPlacement, start: Start
) -> None:
    report = (
        "import json, os, signal; print(json.dumps({'session': os.getsid(0), 'pid': os.getpid(), "
        "'stdin': os.readlink('/proc/self/fd/0'), 'fds': sorted(map(int, os.listdir('/proc/self/fd'))), "
        "'status': open('/proc/self/status').read()}), flush=True)"
    )
    read_end, write_end = os.pipe()
    os.set_inheritable(read_end, True)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        process = await start(placement, report)
        told = json.loads(await printed(placement))
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        os.close(read_end)
        os.close(write_end)
    assert told["session"] == told["pid"] == process.pid
    assert told["stdin"] == "/dev/null"
    # Standard streams, the record, and the listing's own.
    assert told["fds"] == [0, 1, 2, 3, 4]
    (ignored,) = (line for line in told["status"].splitlines() if line.startswith("SigIgn"))
    assert int(ignored.split()[1], 16) & (1 << (signal.SIGUSR1 - 1)) == 0
    await exit_of(placement, process)


@pytest.mark.asyncio
async def test_of_the_environment_only_places_pass(
    paths: FleetPaths, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {**os.environ, "HF_TOKEN": "secret", "OPENAI_API_KEY": "secret", "LANG": "C.UTF-8"}
    placement = LocalPlacement(paths, env)
    process = await start(placement, "import json, os; print(json.dumps(dict(os.environ)))", ENGINE_OWN="1")
    seen = json.loads(await printed(placement))
    await exit_of(placement, process)
    assert "secret" not in seen.values()
    assert seen["ENGINE_OWN"] == "1"
    assert seen["LANG"] == "C.UTF-8"
    assert seen["PATH"] == os.environ["PATH"]
    assert set(seen) <= {*local._PASSED_ON, "ENGINE_OWN", "LC_CTYPE"}


@pytest.mark.asyncio
@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
async def test_the_exit_is_told_with_its_status(
    placement: LocalPlacement, start: Start, code: str, status: int
) -> None:
    process = await start(placement, code)
    assert await exit_of(placement, process) == status
    # Whoever asks later hears it too, and no zombie is left.
    assert await exit_of(placement, process) == status
    assert not Path(f"/proc/{process.pid}").exists()


@pytest.mark.asyncio
async def test_asking_for_the_exit_of_a_stranger_is_a_mistake(placement: LocalPlacement) -> None:
    with pytest.raises(KeyError):
        placement.on_exit(os.getpid(), lambda status: None)


@pytest.mark.asyncio
async def test_a_program_that_cannot_run_says_so_in_its_log(
    placement: LocalPlacement, deployment: DeploymentSpec, no_progress: ProgressSink, start: Start
) -> None:
    placed = await placement.place(deployment, A0, memory_need=lambda _: None, progress=no_progress)
    endpoint = (await start(placement, "pass", "b-0")).endpoint
    process = await placement.launch(placed, argv=("/no/such/engine",), env={}, endpoint=endpoint)
    assert await exit_of(placement, process) == 127
    assert placement.log_tail(A0) == ("cannot run /no/such/engine: No such file or directory",)


@pytest.mark.asyncio
async def test_terminate_reaches_the_whole_group(placement: LocalPlacement, start: Start) -> None:
    process = await start(placement, PARENT + "c.wait()")
    child = int(await printed(placement))
    placement.terminate(A0)
    assert await exit_of(placement, process) == -signal.SIGTERM
    await gone(child)


@pytest.mark.asyncio
async def test_kill_ends_what_does_not_listen(placement: LocalPlacement, start: Start) -> None:
    process = await start(placement, STUBBORN)
    await printed(placement)
    placement.terminate(A0)
    placement.kill(A0)
    assert await exit_of(placement, process) == -signal.SIGKILL
    # Nothing to signal any more, and no harm in trying.
    placement.kill(A0)


@pytest.mark.asyncio
async def test_a_leader_that_ends_takes_its_group_with_it(placement: LocalPlacement, start: Start) -> None:
    process = await start(placement, PARENT)
    child = int(await printed(placement))
    assert await exit_of(placement, process) == 0
    await gone(child)


@pytest.mark.asyncio
async def test_another_placement_adopts_what_runs(
    paths: FleetPaths, placement: LocalPlacement, start: Start, deployment: DeploymentSpec
) -> None:
    process = await start(placement, SLEEP)
    await printed(placement)
    placement.close()
    successor = LocalPlacement(paths, {})
    assert successor.adoptable(A0, deployment.digest()) == process
    successor.terminate(A0)
    await exit_of(successor, process)
    assert successor.adoptable(A0, deployment.digest()) is None


@pytest.mark.asyncio
async def test_a_process_of_another_deployment_is_not_adopted_but_replaced(
    paths: FleetPaths, placement: LocalPlacement, start: Start, deployment: DeploymentSpec
) -> None:
    earlier = await start(placement, SLEEP)
    await printed(placement)
    successor = LocalPlacement(paths, dict(os.environ))
    assert successor.adoptable(A0, "another digest") is None
    later = await start(successor, SLEEP)
    assert identify(earlier.pid) is None
    assert successor.adoptable(A0, deployment.digest()) == later
    assert await exit_of(placement, earlier) == -signal.SIGTERM


@pytest.mark.asyncio
async def test_a_reused_number_is_neither_adopted_nor_ended(
    paths: FleetPaths, placement: LocalPlacement, start: Start, deployment: DeploymentSpec
) -> None:
    process = await start(placement, SLEEP)
    await printed(placement)
    record = paths.replicas_dir / "a-0.json"
    fields = json.loads(record.read_bytes())
    record.unlink()
    record.write_text(json.dumps({**fields, "start_ticks": fields["start_ticks"] - 1}))
    assert LocalPlacement(paths, {}).adoptable(A0, deployment.digest()) is None
    assert end_recorded_processes(paths, grace_s=0) == []
    assert identify(process.pid) is not None
    placement.kill(A0)
    await exit_of(placement, process)


@pytest.mark.asyncio
async def test_release_leaves_nothing(paths: FleetPaths, placement: LocalPlacement, start: Start) -> None:
    process = await start(placement, STUBBORN)
    await printed(placement)
    assert placement.recorded() == (A0,)
    placement.release(A0)
    assert await exit_of(placement, process) == -signal.SIGKILL
    assert placement.recorded() == ()
    assert list(paths.replicas_dir.iterdir()) == []
    placement.release(A0)


@pytest.mark.asyncio
async def test_down_ends_all_groups_and_kills_those_that_do_not_listen(
    paths: FleetPaths, placement: LocalPlacement, start: Start
) -> None:
    polite = await start(placement, PARENT + "c.wait()", "a-0")
    stubborn = await start(placement, STUBBORN, "a-1")
    child = int(await printed(placement, A0))
    await printed(placement, A1)
    ended = await asyncio.to_thread(end_recorded_processes, paths, 0.2)
    assert ended == ["a-0", "a-1"]
    assert await exit_of(placement, polite) == -signal.SIGTERM
    assert await exit_of(placement, stubborn) == -signal.SIGKILL
    await gone(child)
    assert list(paths.replicas_dir.iterdir()) == []


@pytest.mark.asyncio
async def test_down_ends_a_group_whose_leader_is_gone(
    paths: FleetPaths, placement: LocalPlacement, start: Start
) -> None:
    # The child keeps the record's descriptor, as what an engine forks does.
    keeps = PARENT.replace("['sleep', '60']", "['sleep', '60'], close_fds=False")
    process = await start(placement, keeps)
    placement.close()
    child = int(await printed(placement))
    await asyncio.to_thread(os.waitpid, process.pid, 0)
    assert identify(child) is not None
    assert end_recorded_processes(paths, grace_s=1) == ["a-0"]
    await gone(child)


@pytest.mark.asyncio
async def test_a_record_that_cannot_be_understood_does_not_save_the_others(
    paths: FleetPaths, placement: LocalPlacement, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_records, "_LAUNCH_WAIT_S", 0.0)
    process = await start(placement, SLEEP, "b-0")
    await printed(placement, ReplicaId("b-0"))
    with (paths.replicas_dir / "a-0.json").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PilothouseError, match=r"a-0\.json is held by a process that does not say who it is"):
            await asyncio.to_thread(end_recorded_processes, paths, 5)
    assert await exit_of(placement, process) == -signal.SIGTERM
    assert placement.recorded() == (A0,)


CRASHING_CONTROLLER = """
import asyncio, os, signal, sys
from pathlib import Path
from pilothouse.config.paths import FleetPaths
from pilothouse.model.fleet import Endpoint
from pilothouse.placement import local
from pilothouse.placement.local import LocalPlacement, Placement

state = Path(sys.argv[1])
when = sys.argv[2]
spawn = os.posix_spawn

def spawn_and_die(*arguments, **options):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    print(spawn(*arguments, **options), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

os.posix_spawn = spawn_and_die

async def main():
    paths = FleetPaths(state_dir=state / "state", runtime_dir=state / "run", cache_dir=state / "cache",
                       config_dir=state / "config")
    placed = Placement(replica="a-0", digest="d", host="127.0.0.1", port=1, api_key="k", weights=None,
                       log_path=paths.logs_dir / "a-0.log")
    await LocalPlacement(paths, os.environ).launch(
        placed, argv=(sys.executable, "-c", sys.argv[3]), env={}, endpoint=Endpoint(host="127.0.0.1", port=1))

asyncio.run(main())
"""


async def crash(paths: FleetPaths, when: str) -> str:
    """Run a controller that kills itself before or just after it starts a replica; what it printed."""
    controller = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CRASHING_CONTROLLER,
        str(paths.state_dir.parent),
        when,
        SLEEP,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await controller.communicate()
    assert controller.returncode == -signal.SIGKILL
    return output.decode()


@pytest.mark.asyncio
async def test_a_controller_killed_before_the_start_leaves_a_record_of_nothing(
    paths: FleetPaths, placement: LocalPlacement, start: Start
) -> None:
    await crash(paths, "before")
    assert placement.recorded() == (A0,)
    assert placement.adoptable(A0, "d") is None
    process = await start(placement, SLEEP)
    await printed(placement)
    placement.kill(A0)
    await exit_of(placement, process)


@pytest.mark.asyncio
async def test_a_controller_killed_right_after_the_start_loses_no_process(
    paths: FleetPaths, placement: LocalPlacement
) -> None:
    pid = int(await crash(paths, "after"))
    # At once, while the launcher may not yet have written who it is.
    adopted = placement.adoptable(A0, "d")
    assert adopted is not None
    assert adopted.pid == pid
    assert await printed(placement) == "up"
    placement.kill(A0)
    # It was never this process's child, so its status is not known.
    assert await exit_of(placement, adopted) is None


@pytest.mark.asyncio
async def test_down_right_after_such_a_crash_finds_the_process(paths: FleetPaths) -> None:
    pid = int(await crash(paths, "after"))
    assert end_recorded_processes(paths, grace_s=5) == ["a-0"]
    await gone(pid)
    assert list(paths.replicas_dir.iterdir()) == []


@pytest.mark.asyncio
async def test_weights_that_two_replicas_want_are_fetched_by_the_first(
    paths: FleetPaths,
    placement: LocalPlacement,
    deployment: DeploymentSpec,
    no_progress: ProgressSink,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    running = 0

    async def resolve(spec: WeightsSpec, *, cache_dir: Path, progress: object, env: object) -> Path:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        assert cache_dir == paths.weights_dir
        return tmp_path / spec.source

    monkeypatch.setattr(local, "resolve", resolve)
    with_weights = msgspec.structs.replace(deployment, weights=WeightsSpec(source="w"))
    needs: list[Path | None] = []

    def need(weights: Path | None) -> None:
        needs.append(weights)

    placed = await asyncio.gather(
        *(placement.place(with_weights, replica, memory_need=need, progress=no_progress) for replica in (A0, A1))
    )
    assert [each.weights for each in placed] == [tmp_path / "w"] * 2
    assert needs == [tmp_path / "w"] * 2
    assert placed[0].digest == with_weights.digest()
    assert len({each.port for each in placed}) == len({each.api_key for each in placed}) == 2


@pytest.mark.asyncio
async def test_memory_that_is_not_there_is_refused_with_figures(
    placement: LocalPlacement,
    deployment: DeploymentSpec,
    no_progress: ProgressSink,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "available_memory_bytes", lambda: 1000 * 2**20)

    async def place(replica: ReplicaId) -> None:
        await placement.place(deployment, replica, memory_need=lambda _: 600 * 2**20, progress=no_progress)

    await place(A0)
    # The first has not taken its share yet, so the second would not fit beside it.
    with pytest.raises(PilothouseError, match=r"a-1 may need 600 MiB, but 400 MiB are free") as caught:
        await place(A1)
    assert caught.value.code == "not_enough_memory"
    # A new attempt of the first does not count against itself.
    await place(A0)
    placement.release(A0)
    await place(A1)


@pytest.mark.asyncio
async def test_what_a_replica_has_taken_already_is_not_counted_twice(
    placement: LocalPlacement,
    deployment: DeploymentSpec,
    no_progress: ProgressSink,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "available_memory_bytes", lambda: 1000 * 2**20)
    monkeypatch.setattr(host, "resident_bytes", lambda pid: 500 * 2**20)

    async def place(replica: ReplicaId) -> local.Placement:
        return await placement.place(deployment, replica, memory_need=lambda _: 600 * 2**20, progress=no_progress)

    endpoint = (await start(placement, "pass", "b-0")).endpoint
    process = await placement.launch(await place(A0), argv=(sys.executable, "-c", SLEEP), env={}, endpoint=endpoint)
    await place(A1)
    placement.kill(A0)
    await exit_of(placement, process)


@pytest.mark.asyncio
async def test_a_directory_that_cannot_be_written_is_named(
    paths: FleetPaths, placement: LocalPlacement, start: Start
) -> None:
    paths.replicas_dir.rmdir()
    with pytest.raises(PilothouseError, match=r"a-0\.json cannot be written") as caught:
        await start(placement, SLEEP)
    assert caught.value.code == "state_unreadable"


@pytest.mark.asyncio
async def test_a_log_that_cannot_be_opened_leaves_no_process(
    paths: FleetPaths, placement: LocalPlacement, start: Start
) -> None:
    with contextlib.suppress(OSError):
        paths.logs_dir.rmdir()
    with pytest.raises(PilothouseError, match="a-0 cannot be started") as caught:
        await start(placement, SLEEP)
    assert caught.value.code == "replica_start_failed"
    assert placement.adoptable(A0, "d") is None


@pytest.mark.asyncio
async def test_a_process_that_cannot_be_watched_is_not_kept(
    placement: LocalPlacement, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def too_many(pid: int) -> int:
        started.append(pid)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", too_many)
    with pytest.raises(PilothouseError, match="a-0 cannot be watched: Too many open files"):
        await start(placement, SLEEP)
    monkeypatch.undo()
    assert placement.adoptable(A0, "d") is None
    assert not Path(f"/proc/{started[0]}").exists()


def test_without_pidfds_it_says_what_it_needs(paths: FleetPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with pytest.raises(PilothouseError, match=r"Linux 5\.3") as caught:
        LocalPlacement(paths, {})
    assert caught.value.code == "platform_not_supported"
    monkeypatch.undo()
