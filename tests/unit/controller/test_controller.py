"""The controller with real processes: the fake engine, started, killed, adopted, replaced and drained."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilothouse.config.paths import FleetPaths
from pilothouse.controller import controller as controller_module
from pilothouse.engines.base import LaunchLine
from pilothouse.engines.fake import FakeDriver
from pilothouse.model.control import ReplicaSuspected
from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import FleetSnapshot, ReplicaState
from pilothouse.model.ids import ReplicaId
from pilothouse.model.spec import EngineSpec, FleetSpec
from pilothouse.placement import host
from pilothouse.placement.local import LocalPlacement
from pilothouse.placement.process_records import read_record, recorded_replicas
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import BoardWriter, board_path
from pilothouse.testing.processes import running_fake_engine, running_process, wait_until

pytestmark = pytest.mark.asyncio

MakeFleet = Callable[..., FleetSpec]
StartFleet = Callable[[FleetSpec], AbstractAsyncContextManager[Any]]
Listen = Callable[..., AbstractAsyncContextManager[Any]]
Hosted = Callable[[str], FleetSpec]


def is_alive(pid: int) -> bool:
    return (
        Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2][1:2] != b"Z"
    )


def kill(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)


def changed(spec: FleetSpec, **fields: object) -> FleetSpec:
    """The fleet with its one deployment changed."""
    deployment = msgspec.structs.replace(spec.models[0].deployments[0], **fields)
    model = msgspec.structs.replace(spec.models[0], deployments=(deployment,))
    return msgspec.structs.replace(spec, models=(model,))


def other_args(spec: FleetSpec) -> FleetSpec:
    return changed(spec, engine=EngineSpec(name="fake", args={"seed": 7}))


class TestStarting:
    async def test_replicas_start_together_and_workers_hear_of_them(
        self, fleet: MakeFleet, running: StartFleet, listening: Listen
    ) -> None:
        async with running(fleet(2)) as it, listening() as worker:
            await it.until_ready()
            await wait_until(lambda: worker.ready() == {"a-0", "a-1"}, "the snapshot")
            views = worker.latest.models[0].deployments[0].replicas
            ports = {view.endpoint.port for view in views if view.endpoint}
            keys = {view.endpoint.authorization for view in views if view.endpoint}
            assert len(ports) == len(keys) == 2
            assert None not in keys
            assert len({view.alias for view in views}) == 2
            assert not any("a-" in view.alias for view in views)
            status = it.controller.status()
            assert [(each.index, each.pid) for each in status.workers] == [(0, os.getpid())]
            assert status.snapshot_version == worker.latest.version

    async def test_the_snapshot_on_disk_is_the_one_that_was_sent(
        self, fleet: MakeFleet, running: StartFleet, listening: Listen, paths: FleetPaths
    ) -> None:
        async with running(fleet(1)) as it, listening() as worker:
            await it.until_ready()
            await wait_until(lambda: worker.ready() == {"a-0"}, "the snapshot")
            on_disk = msgspec.json.decode(paths.snapshot.read_bytes(), type=FleetSnapshot)
            assert on_disk == worker.latest
            assert paths.snapshot.stat().st_mode & 0o777 == 0o600

    async def test_models_are_known_before_any_replica_is_ready(
        self, fleet: MakeFleet, running: StartFleet, listening: Listen
    ) -> None:
        async with running(fleet(1)), listening() as worker:
            await wait_until(lambda: bool(worker.snapshots), "a snapshot")
            assert [model.name for model in worker.snapshots[0].models] == ["m"]
            assert worker.snapshots[0].models[0].deployments[0].engine == "fake"

    async def test_journals_and_records_of_events_hold_no_keys(
        self, fleet: MakeFleet, running: StartFleet, paths: FleetPaths
    ) -> None:
        async with running(fleet(1)) as it:
            await it.until_ready()
            found = read_record(paths.replicas_dir, ReplicaId("a-0"))
            assert found is not None
            secret = found[0].endpoint.authorization
            assert secret
            assert secret.encode() not in msgspec.json.encode(it.controller.journal.entries)

    async def test_engine_gauges_are_read(
        self, fleet: MakeFleet, running: StartFleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(controller_module, "SCRAPE_EVERY_S", 0.05)
        async with running(fleet(1)) as it:
            await it.until(lambda: it.replicas()["a-0"].requests_running == 0.0, "gauges")
            replica = it.replicas()["a-0"]
            assert replica.kv_usage_ratio is not None
            assert b"pilothouse_engine_requests_running{" in it.controller.metrics_text("").body
            kill(it.pids()["a-0"])
            await it.until(lambda: it.replicas()["a-0"].requests_running is None, "gauges of a dead engine to go")


class TestCrashes:
    async def test_a_killed_replica_comes_back(self, fleet: MakeFleet, running: StartFleet, listening: Listen) -> None:
        async with running(fleet(2)) as it, listening() as worker:
            await it.until_ready()
            before = it.pids()
            kill(before["a-0"])
            await wait_until(lambda: worker.ready() == {"a-1"}, "workers to be told at once")
            await it.until(lambda: it.controller.status().ready and it.pids() != before, "it to be back")
            after = it.replicas()
            assert after["a-1"].pid == before["a-1"]
            assert (after["a-0"].restarts, after["a-1"].restarts) == (1, 0)

    async def test_a_crash_loop_is_named_and_shows_the_last_lines(
        self, fleet: MakeFleet, running: StartFleet, impatient: None
    ) -> None:
        async with running(fleet(1, args={"no-such-option": True})) as it:
            await it.until(lambda: "replica_crash_loop" in it.replicas()["a-0"].detail, "a crash loop")
            replica = it.replicas()["a-0"]
            assert replica.state is ReplicaState.FAILED
            assert "exited with status 2, failure 5 in a row; next attempt after 60 s" in replica.detail
            assert any("no-such-option" in line for line in replica.log_tail)
            assert replica.restarts == 4

    async def test_a_reload_tries_failed_replicas_again_and_a_fixed_file_mends_them(
        self, fleet: MakeFleet, running: StartFleet, impatient: None
    ) -> None:
        async with running(fleet(1, args={"no-such-option": True})) as it:
            await it.until(lambda: "replica_crash_loop" in it.replicas()["a-0"].detail, "a crash loop")
            it.file = fleet(1)
            await it.controller.reload()
            await it.until_ready()

    async def test_a_taken_port_is_not_tried_twice(
        self, fleet: MakeFleet, running: StartFleet, impatient: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as squatter:
            real, taken = host.free_port, [squatter.getsockname()[1]]
            monkeypatch.setattr(host, "free_port", lambda ports: taken.pop() if taken else real(ports))
            async with running(fleet(1)) as it:
                await it.until_ready()
                assert it.replicas()["a-0"].restarts == 1

    async def test_a_suspicion_is_looked_into_at_once(
        self, fleet: MakeFleet, running: StartFleet, listening: Listen
    ) -> None:
        async with running(fleet(1)) as it, listening() as worker:
            await it.until_ready()
            steps = len(it.controller.journal.entries)
            worker.send(ReplicaSuspected(replica=ReplicaId("a-0"), reason="refused"))
            worker.send(ReplicaSuspected(replica=ReplicaId("b-9"), reason="not one of ours"))
            names = ["SuspicionRaised", "ProbeAnswered"]
            await wait_until(
                lambda: [type(e.event).__name__ for e in it.controller.journal.entries[steps:]][:2] == names, "a probe"
            )
            assert it.states() == {"a-0": ReplicaState.READY}


class TestPlacing:
    async def test_what_only_a_person_can_mend_is_told_and_not_tried_again(
        self, fleet: MakeFleet, running: StartFleet
    ) -> None:
        pinned = changed(fleet(1), engine=EngineSpec(name="fake", version="9.9"))
        async with running(pinned) as it:
            await it.until(lambda: it.states() == {"a-0": ReplicaState.FAILED}, "the refusal")
            detail = it.replicas()["a-0"].detail
            assert detail.startswith("engine_version_mismatch: a pins fake 9.9, but")
            assert "next attempt" not in detail

    async def test_too_little_memory_is_told_in_numbers_and_tried_again(
        self, fleet: MakeFleet, running: StartFleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(FakeDriver, "memory_bytes", lambda *_: 2**50)
        async with running(fleet(1)) as it:
            await it.until(lambda: it.states() == {"a-0": ReplicaState.FAILED}, "the refusal")
            detail = it.replicas()["a-0"].detail
            assert detail.startswith("not_enough_memory: a-0 may need 1,073,741,824 MiB, but ")
            assert detail.endswith("; next attempt after 0.5 s")

    async def test_an_engine_that_cannot_be_started_is_told(
        self, fleet: MakeFleet, running: StartFleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(FakeDriver, "launch", lambda *_, **__: LaunchLine(argv=("/no/such/engine",)))
        async with running(fleet(1)) as it:
            await it.until(lambda: it.states() == {"a-0": ReplicaState.FAILED}, "its end")
            replica = it.replicas()["a-0"]
            assert replica.detail == "replica_start_failed: exited with status 127; next attempt after 0.5 s"
            assert replica.log_tail == ("cannot run /no/such/engine: No such file or directory",)

    @pytest.mark.parametrize("method", ["require_installed", "launch"])
    async def test_a_defect_of_a_driver_fails_its_replica_and_no_other(
        self,
        fleet: MakeFleet,
        running: StartFleet,
        method: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(FakeDriver, method, fail)
        async with running(fleet(1)) as it:
            await it.until(lambda: it.states() == {"a-0": ReplicaState.FAILED}, "its failure")
            assert it.replicas()["a-0"].detail.startswith("internal_error: RuntimeError: a defect; next attempt")
        assert "placing a replica failed" in caplog.text


class TestAdoption:
    async def test_a_new_controller_adopts_what_runs_and_tells_no_worker_otherwise(
        self, fleet: MakeFleet, running: StartFleet, listening: Listen
    ) -> None:
        async with running(fleet(2)) as it:
            await it.until_ready()
            before = it.pids()
            last = it.controller.status().snapshot_version
        async with running(fleet(2)) as it, listening() as worker:
            await it.until_ready()
            assert it.pids() == before
            assert it.controller.status().snapshot_version == last
            assert [snapshot.version for snapshot in worker.snapshots] == [last]
            assert it.replicas()["a-0"].uptime_s is not None

    async def test_an_adopted_replica_that_dies_comes_back(self, fleet: MakeFleet, running: StartFleet) -> None:
        async with running(fleet(1)) as it:
            await it.until_ready()
        async with running(fleet(1)) as it:
            await it.until_ready()
            before = it.pids()
            kill(before["a-0"])
            await it.until(lambda: it.controller.status().ready and it.pids() != before, "it to be back")

    async def test_one_that_died_meanwhile_is_dropped_and_started_again(
        self, fleet: MakeFleet, running: StartFleet, listening: Listen
    ) -> None:
        async with running(fleet(2)) as it:
            await it.until_ready()
            pids, version = it.pids(), it.controller.status().snapshot_version
        kill(pids["a-1"])
        await wait_until(lambda: not is_alive(pids["a-1"]), "its end")
        async with running(fleet(2)) as it, listening() as worker:
            await it.until_ready()
            await wait_until(lambda: worker.ready() == {"a-0", "a-1"}, "the snapshot")
            assert it.pids()["a-0"] == pids["a-0"]
            assert all("a-0" in _ready(snapshot) for snapshot in worker.snapshots)
            assert worker.latest.version > version

    async def test_what_runs_something_else_than_the_file_pins_is_ended(
        self, fleet: MakeFleet, running: StartFleet
    ) -> None:
        async with running(fleet(1)) as it:
            await it.until_ready()
            before = it.pids()
        async with running(other_args(fleet(1))) as it:
            assert not is_alive(before["a-0"])
            await it.until_ready()
            assert it.pids() != before

    async def test_a_record_that_cannot_be_used_is_told_and_its_replica_started_anew(
        self,
        fleet: MakeFleet,
        running: StartFleet,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        async with running(fleet(1)) as it:
            await it.until_ready()
            before = it.pids()

        def unreadable(*_: object) -> None:
            raise PilothouseError("state_unreadable", "a-0.json is held by a stranger")

        monkeypatch.setattr(LocalPlacement, "adoptable", unreadable)
        async with running(fleet(1)) as it:
            await it.until_ready()
            assert it.pids() != before
        assert "a record cannot be read" in caplog.text

    async def test_a_leftover_that_cannot_be_ended_is_told(
        self,
        fleet: MakeFleet,
        running: StartFleet,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        async with running(fleet(1)) as it:
            await it.until_ready()

        async def fail(*_: object, **__: object) -> None:
            raise PilothouseError("state_unreadable", "a-0.json cannot be removed")

        with monkeypatch.context() as patched:
            patched.setattr(LocalPlacement, "end_recorded", fail)
            async with running(fleet(0, name="b")):
                assert "a leftover process could not be ended" in caplog.text

    async def test_what_is_not_wanted_any_more_is_ended(
        self, fleet: MakeFleet, running: StartFleet, paths: FleetPaths
    ) -> None:
        async with running(fleet(2)) as it:
            await it.until_ready()
            before = it.pids()
        async with running(fleet(1)) as it:
            await it.until(lambda: set(it.states()) == {"a-0"}, "the surplus one to go")
            assert it.pids()["a-0"] == before["a-0"]
            assert not is_alive(before["a-1"])
        async with running(fleet(1, name="b")) as it:
            assert not is_alive(before["a-0"])
            await it.until_ready()
            assert recorded_replicas(paths.replicas_dir) == ("b-0",)

    async def test_a_damaged_snapshot_is_replaced_by_a_newer_one(
        self, fleet: MakeFleet, running: StartFleet, paths: FleetPaths
    ) -> None:
        async with running(fleet(1)) as it:
            await it.until_ready()
            version = it.controller.status().snapshot_version
        paths.snapshot.write_bytes(b'{"fleet": "te')
        async with running(fleet(1)) as it:
            await it.until_ready()
            assert it.controller.status().snapshot_version > version

    async def test_workers_keep_what_they_have_while_an_adopted_one_is_slow_to_answer(
        self, fleet: MakeFleet, running: StartFleet, listening: Listen, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(controller_module, "TAKE_OVER_TIMEOUT_S", 0.3)
        async with running(fleet(1)) as it:
            await it.until_ready()
            pid = it.pids()["a-0"]
        os.kill(pid, signal.SIGSTOP)
        try:
            async with running(fleet(1)) as it, listening() as worker:
                await wait_until(lambda: bool(worker.snapshots), "the last snapshot")
                assert worker.ready() == {"a-0"}
                await wait_until(lambda: worker.ready() == set(), "the end of patience")
                os.kill(pid, signal.SIGCONT)
                await it.until_ready()
                assert it.pids()["a-0"] == pid
        finally:
            os.kill(pid, signal.SIGCONT)


def _ready(snapshot: FleetSnapshot) -> set[str]:
    return {
        view.id
        for model in snapshot.models
        for each in model.deployments
        for view in each.replicas
        if view.state is ReplicaState.READY
    }


class TestScraping:
    async def test_a_driver_that_cannot_read_its_engine_ends_nothing(
        self,
        fleet: MakeFleet,
        running: StartFleet,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("not the page I know")

        monkeypatch.setattr(controller_module, "SCRAPE_EVERY_S", 0.02)
        monkeypatch.setattr(FakeDriver, "read_metrics", fail)
        async with running(fleet(1)) as it:
            await it.until(lambda: caplog.text.count("could not be read") > 1, "two complaints")
            assert it.states() == {"a-0": ReplicaState.READY}


class TestReloading:
    async def test_nothing_changed_changes_nothing(self, fleet: MakeFleet, running: StartFleet) -> None:
        async with running(fleet(1)) as it:
            await it.until_ready()
            before = (it.pids(), it.controller.status().snapshot_version)
            assert (await it.controller.reload()).changes == ()
            await it.until_ready()
            assert (it.pids(), it.controller.status().snapshot_version) == before

    async def test_scaling_up_and_down(self, fleet: MakeFleet, running: StartFleet) -> None:
        async with running(fleet(1)) as it:
            await it.until_ready()
            first = it.pids()
            it.file = fleet(2)
            assert (await it.controller.reload()).changes != ()
            await it.until_ready()
            assert set(it.pids()) == {"a-0", "a-1"}
            it.file = fleet(1)
            await it.controller.reload()
            await it.until(lambda: it.pids() == first, "one to stop")

    async def test_a_changed_deployment_is_replaced_without_losing_all_capacity(
        self, fleet: MakeFleet, running: StartFleet, listening: Listen
    ) -> None:
        async with running(fleet(2)) as it, listening() as worker:
            await it.until_ready()
            await wait_until(lambda: worker.ready() == {"a-0", "a-1"}, "the snapshot")
            old, seen = set(it.pids().values()), len(worker.snapshots)
            it.file = other_args(fleet(2))
            await it.controller.reload()
            await it.until(lambda: it.controller.status().ready and len(it.states()) == 2, "both to be replaced")
            assert not old & set(it.pids().values())
            await wait_until(lambda: len(worker.ready()) == 2, "the snapshot")
            assert all(_ready(snapshot) for snapshot in worker.snapshots[seen:])

    async def test_a_single_replica_is_replaced_only_once_the_new_one_is_ready(
        self, fleet: MakeFleet, running: StartFleet, listening: Listen
    ) -> None:
        async with running(fleet(1)) as it, listening() as worker:
            await it.until_ready()
            await wait_until(lambda: worker.ready() == {"a-0"}, "the snapshot")
            seen = len(worker.snapshots)
            it.file = other_args(fleet(1))
            await it.controller.reload()
            await it.until(lambda: set(it.states()) == {"a-1"}, "the old one to go")
            await wait_until(lambda: worker.ready() == {"a-1"}, "the snapshot")
            assert all(_ready(snapshot) for snapshot in worker.snapshots[seen:])

    async def test_a_replacement_that_never_gets_ready_leaves_the_old_one_serving(
        self, fleet: MakeFleet, running: StartFleet, listening: Listen, impatient: None
    ) -> None:
        async with running(fleet(1)) as it, listening() as worker:
            await it.until_ready()
            it.file = fleet(1, args={"no-such-option": True})
            await it.controller.reload()
            await it.until(
                lambda: "crash_loop" in it.replicas().get("a-1", it.replicas()["a-0"]).detail, "a crash loop"
            )
            assert worker.ready() == {"a-0"}
            assert not it.controller.status().ready

    async def test_a_bad_file_changes_nothing(self, fleet: MakeFleet, running: StartFleet) -> None:
        def refuse() -> FleetSpec:
            raise PilothouseError("config_invalid", "fleet.yaml:3: no such key")

        async with running(fleet(1)) as it:
            await it.until_ready()
            before = it.pids()
            it.controller._load_spec = refuse
            with pytest.raises(PilothouseError, match="no such key"):
                await it.controller.reload()
            await it.until_ready()
            assert it.pids() == before

    async def test_another_fleet_name_is_refused(self, fleet: MakeFleet, running: StartFleet) -> None:
        async with running(fleet(1)) as it:
            it.file = msgspec.structs.replace(it.file, name="other")
            with pytest.raises(PilothouseError, match="was started as test") as refused:
                await it.controller.reload()
            assert refused.value.code == "config_invalid"

    async def test_settings_of_the_gateway_are_said_to_wait_for_a_restart(
        self, fleet: MakeFleet, running: StartFleet
    ) -> None:
        async with running(fleet(1)) as it:
            it.file = fleet(1, drain_timeout_s=9)
            assert "with `pilothouse restart`" in (await it.controller.reload()).changes[-1]


class TestDraining:
    async def test_a_replica_is_ended_only_when_no_worker_has_a_request_on_it(
        self, fleet: MakeFleet, running: StartFleet, paths: FleetPaths
    ) -> None:
        board = BoardWriter(board_path(paths.board_dir, 0), worker=0)
        turns = board.gauge(catalogue.IN_FLIGHT_REQUESTS.name, {"model": "m", "replica": "a-0"})
        async with running(fleet(1)) as it:
            await it.until_ready()
            board.set_snapshot_version(it.controller.status().snapshot_version)
            turns.add(1)
            assert it.replicas()["a-0"].in_flight == 1
            pid = it.pids()["a-0"]
            it.file = fleet(0)
            await it.controller.reload()
            await it.until(lambda: it.states() == {"a-0": ReplicaState.DRAINING}, "draining")
            turns.add(-1)  # but the worker does not know yet that it takes no more
            await asyncio.sleep(0.3)
            assert is_alive(pid)
            board.set_snapshot_version(it.controller.status().snapshot_version)
            turns.add(1)
            await asyncio.sleep(0.3)
            assert is_alive(pid)
            turns.add(-1)
            await it.until(lambda: it.states() == {}, "its end")
            assert not is_alive(pid)
        board.close()

    async def test_a_dead_workers_board_holds_nothing_up(
        self, fleet: MakeFleet, running: StartFleet, paths: FleetPaths
    ) -> None:
        code = (
            "import sys; from pathlib import Path; from pilothouse.telemetry.board import BoardWriter;"
            "BoardWriter(Path(sys.argv[1]), worker=0).set_snapshot_version(1)"
        )
        async with running_process([sys.executable, "-c", code, str(board_path(paths.board_dir, 0))]) as worker:
            assert await worker.wait() == 0
        async with running(fleet(1)) as it:
            await it.until_ready()
            it.file = fleet(0)
            await it.controller.reload()
            await it.until(lambda: it.states() == {}, "its end")

    async def test_stopping_ends_all_and_leaves_no_record(
        self, fleet: MakeFleet, running: StartFleet, paths: FleetPaths
    ) -> None:
        async with running(fleet(2)) as it:
            await it.until_ready()
            pids = it.pids()
            await it.controller.stop()
            assert not any(map(is_alive, pids.values()))
            assert recorded_replicas(paths.replicas_dir) == ()
            assert not paths.control_socket.exists()
            snapshot = msgspec.json.decode(paths.snapshot.read_bytes(), type=FleetSnapshot)
            assert _ready(snapshot) == set()
            with pytest.raises(PilothouseError, match="being stopped"):
                await it.controller.reload()

    async def test_a_replica_that_does_not_end_is_killed(
        self, fleet: MakeFleet, running: StartFleet, impatient: None
    ) -> None:
        async with running(fleet(1)) as it:
            await it.until_ready()
            pid = it.pids()["a-0"]
            os.kill(pid, signal.SIGSTOP)
            await it.controller.stop()
            assert not is_alive(pid)

    async def test_stopping_while_starting(self, fleet: MakeFleet, running: StartFleet, paths: FleetPaths) -> None:
        async with running(fleet(2)) as it:
            await it.controller.stop()
            assert recorded_replicas(paths.replicas_dir) == ()

    async def test_stopping_an_empty_fleet(self, fleet: MakeFleet, running: StartFleet) -> None:
        async with running(fleet(0)) as it:
            assert it.controller.status().ready
            await it.controller.stop()

    async def test_turns_that_outlast_the_grace_are_cut(
        self, fleet: MakeFleet, running: StartFleet, paths: FleetPaths
    ) -> None:
        board = BoardWriter(board_path(paths.board_dir, 0), worker=0)
        board.gauge(catalogue.IN_FLIGHT_REQUESTS.name, {"model": "m", "replica": "a-0"}).add(1)
        async with running(fleet(1, drain_timeout_s=0.2)) as it:
            await it.until_ready()
            await it.controller.stop()
            assert it.states() == {}
        board.close()


class TestHosted:
    async def test_a_replica_without_a_process(self, running: StartFleet, listening: Listen, hosted: Hosted) -> None:
        async with running_fake_engine(key="secret") as (engine, url):
            async with running(hosted(url)) as it, listening() as worker:
                await it.until_ready()
                await wait_until(lambda: worker.ready() == {"h-0"}, "the snapshot")
                endpoint = worker.latest.models[0].deployments[0].replicas[0].endpoint
                assert endpoint is not None
                assert endpoint.authorization == "Bearer secret"
                assert it.pids() == {}
                assert is_alive(engine.pid)
                await it.controller.stop()
            assert is_alive(engine.pid)

    async def test_a_new_controller_keeps_it_published_while_it_looks(
        self, running: StartFleet, listening: Listen, hosted: Hosted
    ) -> None:
        async with running_fake_engine(key="secret") as (_, url):
            async with running(hosted(url)) as it:
                await it.until_ready()
                version = it.controller.status().snapshot_version
            async with running(hosted(url)) as it, listening() as worker:
                await it.until_ready()
                assert [snapshot.version for snapshot in worker.snapshots] == [version]

    async def test_a_wrong_key_is_told(self, running: StartFleet, hosted: Hosted) -> None:
        async with running_fake_engine(key="another") as (_, url), running(hosted(url)) as it:
            await it.until(lambda: "401" in it.replicas()["h-0"].detail, "the refusal")
            assert not it.controller.status().ready
