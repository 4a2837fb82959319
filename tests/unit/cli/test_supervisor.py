import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pilothouse.cli.child import ChildSpec, restart_delay
from pilothouse.cli.fleet_record import ChildRecord, is_alive
from pilothouse.cli.supervisor import Supervisor
from pilothouse.placement.processes import ProcessIdentity

STEADY = "exec sleep 60"
STUBBORN = "trap '' TERM; echo deaf; while :; do sleep 0.1; done"


class Watched:
    """A running supervisor with what it reported."""

    def __init__(self, *specs: ChildSpec) -> None:
        self.deaths: list[str] = []
        self.history: list[tuple[ChildRecord, ...]] = []
        self.supervisor = Supervisor(specs, on_death=self.deaths.append, on_change=self.history.append)
        self.task = asyncio.get_running_loop().create_task(self.supervisor.run())

    @property
    def running(self) -> dict[str, ProcessIdentity]:
        now = self.history[-1] if self.history else ()
        return {each.name: each.process for each in now if each.process is not None}

    @property
    def started(self) -> set[str]:
        return {each.name for records in self.history for each in records if each.process is not None}

    def pid(self, name: str) -> int:
        return self.running[name].pid

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self.task.done():
                self.task.result()
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def supervised(*specs: ChildSpec) -> AsyncIterator[Watched]:
    watched = Watched(*specs)
    try:
        await watched.until(lambda: watched.started == {spec.name for spec in specs})
        yield watched
    finally:
        watched.supervisor.request_stop()
        watched.supervisor.request_stop()
        await watched.task


def child(tmp_path: Path, script: str, *, name: str = "worker-0", stage: int = 0, grace_s: float = 10.0) -> ChildSpec:
    return ChildSpec(
        name=name,
        argv=("/bin/sh", "-c", script),
        env={"PATH": os.environ["PATH"]},
        log_path=tmp_path / f"{name}.log",
        cwd=tmp_path,
        stop_stage=stage,
        stop_grace_s=grace_s,
    )


async def log_has(path: Path, text: str) -> None:
    while not path.exists() or text not in path.read_text():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)


def test_the_first_restart_waits_for_nothing_and_later_ones_longer_and_longer() -> None:
    delays = [restart_delay(deaths) for deaths in range(1, 12)]
    assert delays[:5] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert delays[-1] == 30.0
    assert delays == sorted(delays)


@pytest.mark.asyncio
async def test_a_killed_child_is_started_again(tmp_path: Path) -> None:
    async with supervised(child(tmp_path, STEADY)) as watched:
        first = watched.pid("worker-0")
        os.kill(first, signal.SIGKILL)
        await watched.until(lambda: bool(watched.deaths) and bool(watched.running))
        assert watched.pid("worker-0") != first
        assert watched.history[-1][0].restarts == 1
        assert watched.deaths == ["worker-0"]


@pytest.mark.asyncio
async def test_a_child_that_ends_at_once_is_tried_again_and_can_still_be_stopped(tmp_path: Path) -> None:
    async with supervised(child(tmp_path, "echo no; exit 3")) as watched:
        await watched.until(lambda: len(watched.deaths) >= 3)
        watched.supervisor.request_stop()
        assert await watched.task
    assert (tmp_path / "worker-0.log").read_text().count("no\n") >= 3


@pytest.mark.asyncio
async def test_children_are_in_groups_of_their_own(tmp_path: Path) -> None:
    async with supervised(child(tmp_path, STEADY)) as watched:
        assert os.getpgid(watched.pid("worker-0")) == watched.pid("worker-0")


@pytest.mark.asyncio
async def test_workers_end_before_the_controller_is_told(tmp_path: Path) -> None:
    order = tmp_path / "order"
    worker = f"trap 'sleep 0.2; echo worker >> {order}; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    controller = f"trap 'echo controller >> {order}; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    specs = (child(tmp_path, controller, name="controller", stage=1), child(tmp_path, worker))
    async with supervised(*specs) as watched:
        for spec in specs:
            await log_has(spec.log_path, "up")
        watched.supervisor.request_stop()
        assert await watched.task
        assert order.read_text().split() == ["worker", "controller"]
        assert watched.running == {}


@pytest.mark.asyncio
async def test_what_does_not_end_within_its_grace_is_killed(tmp_path: Path) -> None:
    spec = child(tmp_path, STUBBORN, grace_s=0.05)
    async with supervised(spec) as watched:
        await log_has(spec.log_path, "deaf")
        process = watched.running["worker-0"]
        watched.supervisor.request_stop()
        assert not await watched.task
        assert not is_alive(process)


@pytest.mark.asyncio
async def test_a_second_request_to_stop_hurries(tmp_path: Path) -> None:
    spec = child(tmp_path, STUBBORN, grace_s=600.0)
    async with supervised(spec) as watched:
        await log_has(spec.log_path, "deaf")
        watched.supervisor.request_stop()
        await asyncio.sleep(0)
        assert not watched.task.done()
        watched.supervisor.request_stop()
        assert not await watched.task


@pytest.mark.asyncio
async def test_a_child_that_waits_for_its_restart_is_not_started_any_more(tmp_path: Path) -> None:
    async with supervised(child(tmp_path, "exit 1")) as watched:
        await watched.until(lambda: len(watched.deaths) >= 2)
        watched.supervisor.request_stop()
        await watched.task
        assert watched.running == {}
        assert watched.history[-1][0].restarts >= 2


@pytest.mark.asyncio
async def test_signals_reach_the_child_that_is_named(tmp_path: Path) -> None:
    script = "trap 'echo reload' HUP; echo up; while :; do sleep 0.02; done"
    specs = (child(tmp_path, script, name="controller", stage=1), child(tmp_path, script))
    async with supervised(*specs) as watched:
        for spec in specs:
            await log_has(spec.log_path, "up")
        watched.supervisor.send("controller", signal.SIGHUP)
        await log_has(specs[0].log_path, "reload")
        assert "reload" not in specs[1].log_path.read_text()


@pytest.mark.asyncio
async def test_a_program_that_does_not_exist_ends_the_others_too(tmp_path: Path) -> None:
    missing = ChildSpec(
        name="worker-0", argv=("/does/not/exist",), env={}, log_path=tmp_path / "worker-0.log", cwd=tmp_path
    )
    watched = Watched(child(tmp_path, STEADY, name="controller", stage=1), missing)
    with pytest.raises(FileNotFoundError):
        await watched.task
    started = watched.history[0][0].process
    assert started is not None
    assert not is_alive(started)


@pytest.mark.asyncio
async def test_only_the_descriptors_it_is_given_are_inherited(tmp_path: Path) -> None:
    given, kept = os.pipe()
    try:
        spec = ChildSpec(
            name="worker-0",
            argv=(sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')), flush=True); input()"),
            env={},
            log_path=tmp_path / "worker-0.log",
            cwd=tmp_path,
            inherits=(given,),
        )
        async with supervised(spec):
            await log_has(spec.log_path, f"'{given}'")
            assert f"'{kept}'" not in spec.log_path.read_text()
    finally:
        os.close(given)
        os.close(kept)


@pytest.mark.asyncio
async def test_logs_are_appended_to_and_the_owner_s_alone(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    async with supervised(child(tmp_path, f"echo one; {STEADY}")) as watched:
        await log_has(log, "one")
        os.kill(watched.pid("worker-0"), signal.SIGKILL)
        await log_has(log, "one\none")
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.asyncio
async def test_children_of_a_stage_are_replaced_when_the_new_ones_are_ready(tmp_path: Path) -> None:
    controller = child(tmp_path, STEADY, name="controller", stage=1)
    async with supervised(child(tmp_path, STEADY), controller) as watched:
        old, kept = watched.running["worker-0"], watched.running["controller"]
        asked: list[str] = []

        def is_ready(record: ChildRecord) -> bool:
            asked.append(record.name)
            assert is_alive(old), "the old one serves until the new one does"
            return len(asked) > 3

        new = child(tmp_path, STEADY, name="worker-1")
        assert await watched.supervisor.replace(0, [new], is_ready, patience_s=10)
        assert set(watched.running) == {"worker-1", "controller"}
        assert watched.running["controller"] == kept
        assert watched.supervisor.names(0) == ["worker-1"]
        assert not is_alive(old)
        assert watched.deaths == ["worker-0"]


@pytest.mark.asyncio
@pytest.mark.parametrize("script", [STEADY, "exit 3"])
async def test_new_children_that_do_not_get_ready_are_ended_and_the_old_ones_stay(tmp_path: Path, script: str) -> None:
    async with supervised(child(tmp_path, STEADY)) as watched:
        old = watched.running["worker-0"]
        new = child(tmp_path, script, name="worker-1")
        assert not await watched.supervisor.replace(0, [new], lambda record: False, patience_s=0.2)
        assert watched.running == {"worker-0": old}
        assert is_alive(old)
        assert watched.supervisor.names(0) == ["worker-0"]


@pytest.mark.asyncio
async def test_a_fleet_that_stops_while_its_workers_are_replaced_leaves_none(tmp_path: Path) -> None:
    async with supervised(child(tmp_path, STEADY)) as watched:
        new = child(tmp_path, STEADY, name="worker-1")
        replacing = asyncio.get_running_loop().create_task(
            watched.supervisor.replace(0, [new], lambda record: False, patience_s=10)
        )
        await watched.until(lambda: "worker-1" in watched.running)
        watched.supervisor.request_stop()
        await watched.task
        assert not await replacing
        assert watched.running == {}
