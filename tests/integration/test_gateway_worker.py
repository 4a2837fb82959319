"""A gateway worker as a process of its own: how it starts, hears of the fleet, and leaves."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from data_plane import ENGINE_KEY, MODEL, chat, request, snapshot
from pilothouse.model.control import ReplicaSuspected, SnapshotPublished, WorkerJoined
from pilothouse.model.filters import Action, FilterSpec
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.spec import GatewayLimits
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import read_boards
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script
from pilothouse.testing.processes import free_port, running_process, wait_until
from pilothouse.wire.control_channel import Decoder, encode
from worker_home import WorkerHome

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(40)]

CHAT = "/v1/chat/completions"
ENDLESS = Script(stall_after=3)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[WorkerHome]:
    found = WorkerHome(tmp_path)
    yield found
    found.close()


def engine() -> FakeEngine:
    return FakeEngine(EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01))


def fleet_of(*ports: int, version: int = 1) -> bytes:
    return msgspec.json.encode(snapshot(ports, version))


async def test_it_serves_from_the_snapshot_on_disk_without_a_controller(home: WorkerHome) -> None:
    async with engine() as upstream:
        home.snapshot.write_bytes(fleet_of(upstream.port))
        async with home.worker() as worker:
            await worker.wait_for_line("worker serves")
            answer = await (await home.send(request(CHAT, chat(max_tokens=3)))).answer()
            assert (answer.status, answer.json()["usage"]["completion_tokens"]) == (200, 3)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_stop_it_finishes_its_streams_and_takes_nothing_new(
    home: WorkerHome, number: signal.Signals
) -> None:
    async with engine() as upstream:
        home.snapshot.write_bytes(fleet_of(upstream.port))
        async with home.worker() as worker:
            await worker.wait_for_line("worker serves")
            upstream.script(Script(stall_after=3, stall_s=0.5))
            wire = await home.send(request(CHAT, chat(stream=True, max_tokens=20)))
            await wire.head()
            idle = await home.send(b"")
            worker.send(number)
            await worker.wait_for_line("worker drains")
            assert await idle.reader.read() == b"", "an idle connection is closed"
            pieces = []
            while piece := await wire.chunk():
                pieces.append(piece)
            assert b"".join(pieces).endswith(b"data: [DONE]\n\n")
            assert await wire.reader.read() == b""
            assert await worker.wait() == 0


async def test_an_answer_under_way_when_the_drain_begins_says_that_the_connection_ends(home: WorkerHome) -> None:
    async with engine() as upstream:
        home.snapshot.write_bytes(fleet_of(upstream.port))
        async with home.worker() as worker:
            await worker.wait_for_line("worker serves")
            upstream.script(Script(delay_s=0.3))
            unary = await home.send(request(CHAT, chat(max_tokens=2)))
            upstream.script(Script(stall_after=3, stall_s=0.3))
            stream = await home.send(request(CHAT, chat(stream=True, max_tokens=9)))
            _, headers = await stream.head()
            assert "connection" not in headers, "it was promised to be kept"
            worker.send(signal.SIGTERM)
            await worker.wait_for_line("worker drains")
            assert (await unary.answer()).headers["connection"] == "close"
            while await stream.chunk():
                pass
            stream.writer.write(request(CHAT, chat(max_tokens=2)))
            answer = await stream.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close"), "a promise that is kept"
            assert await worker.wait() == 0


async def test_a_stream_that_outlives_the_drain_ends_with_an_error(home: WorkerHome) -> None:
    home.boot = msgspec.structs.replace(home.boot, limits=GatewayLimits(drain_timeout_s=0.3))
    async with engine() as upstream:
        home.snapshot.write_bytes(fleet_of(upstream.port))
        async with home.worker() as worker:
            await worker.wait_for_line("worker serves")
            upstream.script(ENDLESS)
            wire = await home.send(request(CHAT, chat(stream=True, max_tokens=20)))
            await wire.head()
            worker.send(signal.SIGTERM)
            pieces = []
            while piece := await wire.chunk():
                pieces.append(piece)
            error = json.loads(pieces[-1].split(b"data: ")[1])["error"]
            assert error["code"] == "shutting_down"
            assert await worker.wait() == 0
            await wait_until(lambda: upstream.state().running == 0, "the engine stops too")
    in_flight = read_boards(home.boards).value(catalogue.IN_FLIGHT_REQUESTS.name, {})
    assert in_flight == 0


async def test_when_its_supervisor_is_gone_it_leaves(home: WorkerHome) -> None:
    async with home.worker() as worker:
        await worker.wait_for_line("worker serves")
        os.close(home.lifeline)
        assert await worker.wait() == 0
        assert any("worker stops" in line for line in worker.lines)


@pytest.mark.parametrize("content", [b"", b"{", b'{"fleet":"tests"}', b"\xff\xfe", b'{"fleet":7,"version":"x"}'])
async def test_a_damaged_snapshot_is_told_of_and_not_fatal(home: WorkerHome, content: bytes) -> None:
    home.snapshot.write_bytes(content)
    async with home.worker() as worker:
        await worker.wait_for_line("snapshot unreadable")
        await worker.wait_for_line("worker serves")
        status, text = await home.ready()
        assert (status, "[-]snapshot failed" in text) == (503, True)


async def test_without_its_pepper_it_does_not_start(home: WorkerHome) -> None:
    home.pepper.unlink()
    async with home.worker() as worker:
        assert await worker.wait() == 1
        assert any("state_unreadable" in line and str(home.pepper) in line for line in worker.lines)


async def test_a_usage_line_for_the_wrong_arguments() -> None:
    async with running_process([sys.executable, "-P", "-m", "pilothouse.gateway.worker"]) as worker:
        assert await worker.wait() == 2
        assert worker.lines[0].startswith("usage: ")


class Controller:
    """The controller's end of the socket: it tells one snapshot and notes what it hears."""

    def __init__(self, fleet: FleetSnapshot) -> None:
        self.fleet = fleet
        self.heard: list[object] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        writer.write(encode(SnapshotPublished(snapshot=self.fleet)))
        decoder = Decoder()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                self.heard += decoder.feed(data)
        writer.close()


async def test_a_controllers_snapshot_replaces_the_one_on_disk_and_suspicions_reach_it(home: WorkerHome) -> None:
    home.snapshot.write_bytes(fleet_of())
    dead = free_port()
    controller = Controller(snapshot([dead], version=5))
    async with home.worker() as worker:
        await worker.wait_for_line("worker serves")
        assert (await home.ready())[0] == 503
        async with await asyncio.start_unix_server(controller.serve, home.boot.control_socket):
            await worker.wait_for_line("controller joined")
            assert "version 5" in (await home.ready())[1]
            assert read_boards(home.boards).boards[0].snapshot_version == 5
            answer = await (await home.send(request(CHAT, chat()))).answer()
            assert answer.code == "replica_unreachable"
            await wait_until(lambda: len(controller.heard) == 2, "joining and a suspicion are heard")
            joined, suspected = controller.heard
            assert joined == WorkerJoined(index=3, pid=worker.pid, directory=1)
            assert isinstance(suspected, ReplicaSuspected)
            for writer in controller.writers:
                writer.write(b"\xff\xff\xff\xff nonsense")
            await wait_until(lambda: len(controller.writers) == 2, "it connects again")
        for writer in controller.writers:
            writer.close()
        await worker.wait_for_line("controller lost")
        assert "version 5" in (await home.ready())[1], "it serves on without a controller"


async def test_filters_on_disk_are_in_force_from_the_first_request_and_new_ones_come_with_the_snapshot(
    home: WorkerHome,
) -> None:
    asked = request(CHAT, chat(messages=[{"role": "user", "content": "I am a@b.io"}], max_tokens=1))
    async with engine() as upstream:
        blocking = FilterSpec(name="x", input={"email": Action.BLOCK})
        plain = snapshot([upstream.port])
        home.snapshot.write_bytes(msgspec.json.encode(msgspec.structs.replace(plain, filters=(blocking,))))
        redacting = FilterSpec(name="x", input={"all": Action.REDACT})
        controller = Controller(msgspec.structs.replace(plain, version=5, filters=(redacting,)))
        async with home.worker() as worker:
            await worker.wait_for_line("worker serves")
            assert (await (await home.send(asked)).answer()).code == "content_filter"
            async with await asyncio.start_unix_server(controller.serve, home.boot.control_socket):
                await worker.wait_for_line("controller joined")
                await wait_until(lambda: read_boards(home.boards).boards[0].snapshot_version == 5, "it is served")
                assert (await (await home.send(asked)).answer()).status == 200
                assert b"a@b.io" not in upstream.requests[-1].body
                # Without filters again, at once.
                for writer in controller.writers:
                    writer.write(encode(SnapshotPublished(snapshot=msgspec.structs.replace(plain, version=6))))
                await wait_until(lambda: read_boards(home.boards).boards[0].snapshot_version == 6, "it is served")
                assert (await (await home.send(asked)).answer()).status == 200
                assert b"a@b.io" in upstream.requests[-1].body
            for writer in controller.writers:
                writer.close()


async def test_two_workers_share_a_socket_and_the_death_of_one_costs_only_its_connections(home: WorkerHome) -> None:
    async with engine() as upstream, home.worker() as first:
        home.snapshot.write_bytes(fleet_of(upstream.port))
        await first.wait_for_line("worker serves")
        home.boot = msgspec.structs.replace(home.boot, index=4)
        async with home.worker() as second:
            await second.wait_for_line("worker serves")
            first.send(signal.SIGKILL)
            await first.wait()
            answers = [await (await home.send(request(CHAT, chat(max_tokens=1)))).answer() for _ in range(10)]
            assert [answer.status for answer in answers] == [200] * 10
