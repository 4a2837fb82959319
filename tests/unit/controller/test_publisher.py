import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import pytest_asyncio

from pilothouse.config.paths import FleetPaths
from pilothouse.controller import publisher as publisher_module
from pilothouse.controller.publisher import JoinedWorker, Publisher
from pilothouse.model.control import ReplicaSuspected, SnapshotPublished
from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import FleetSnapshot, ModelView
from pilothouse.model.ids import FleetName, ModelName, ReplicaId
from pilothouse.testing.processes import wait_until
from pilothouse.wire import control_channel

pytestmark = pytest.mark.asyncio

Listen = Callable[..., AbstractAsyncContextManager[Any]]


def snapshot(version: int, models: int = 0) -> FleetSnapshot:
    views = tuple(ModelView(name=ModelName(f"{n:0100}"), created=1, deployments=()) for n in range(models))
    return FleetSnapshot(fleet=FleetName("test"), version=version, models=views)


@pytest_asyncio.fixture
async def suspected() -> list[ReplicaSuspected]:
    return []


@pytest_asyncio.fixture
async def publisher(paths: FleetPaths, suspected: list[ReplicaSuspected]) -> AsyncIterator[Publisher]:
    publisher = Publisher(paths.control_socket, suspected.append)
    await publisher.start()
    yield publisher
    await publisher.close()


def versions(worker: Any) -> list[int]:
    return [each.version for each in worker.snapshots]


async def test_the_whole_snapshot_is_sent_on_joining_and_on_each_change(
    publisher: Publisher, listening: Listen
) -> None:
    publisher.publish(snapshot(1))
    async with listening() as one:
        await wait_until(lambda: versions(one) == [1], "the first")
        publisher.publish(snapshot(2))
        await wait_until(lambda: versions(one) == [1, 2], "the second")
        async with listening(1) as other:
            await wait_until(lambda: versions(other) == [2], "the present one")
    assert versions(one) == [1, 2]


async def test_nothing_is_sent_before_there_is_something(publisher: Publisher, listening: Listen) -> None:
    async with listening() as worker:
        await wait_until(lambda: bool(publisher.workers), "the worker")
        assert worker.snapshots == []
        publisher.publish(snapshot(1))
        await wait_until(lambda: versions(worker) == [1], "the first")


async def test_the_socket_is_for_its_owner_alone(publisher: Publisher, paths: FleetPaths) -> None:
    assert paths.control_socket.stat().st_mode & 0o777 == 0o600


async def test_a_process_of_another_user_is_refused(
    publisher: Publisher, listening: Listen, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publisher.publish(snapshot(1))
    monkeypatch.setattr(publisher_module, "_peer_uid", lambda writer: os.getuid() + 1)
    async with listening() as worker:
        await wait_until(lambda: worker.ended, "the refusal")
        assert worker.snapshots == []
    assert "another user" in caplog.text


async def test_workers_are_known_while_they_are_connected(publisher: Publisher, listening: Listen) -> None:
    async with listening(1), listening(0):
        both = (JoinedWorker(index=0, pid=os.getpid()), JoinedWorker(index=1, pid=os.getpid()))
        await wait_until(lambda: publisher.workers == both, "both")
    await wait_until(lambda: publisher.workers == (), "none")


async def test_one_that_does_not_say_who_it_is_hears_but_is_no_worker(publisher: Publisher, listening: Listen) -> None:
    publisher.publish(snapshot(1))
    async with listening(None) as listener:
        await wait_until(lambda: versions(listener) == [1], "the first")
        assert publisher.workers == ()


async def test_suspicions_are_handed_on(
    publisher: Publisher, suspected: list[ReplicaSuspected], listening: Listen
) -> None:
    message = ReplicaSuspected(replica=ReplicaId("a-0"), reason="refused")
    async with listening() as worker:
        worker.send(message)
        await wait_until(lambda: suspected == [message], "the suspicion")


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{}", control_channel.encode(SnapshotPublished(snapshot=snapshot(9)))],
)
async def test_one_that_does_not_speak_the_protocol_is_cut_off_and_the_others_are_not(
    publisher: Publisher, listening: Listen, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    publisher.publish(snapshot(1))
    async with listening(0) as good, listening(1) as bad:
        bad.send_bytes(data)
        await wait_until(lambda: bad.ended, "the end")
        publisher.publish(snapshot(2))
        await wait_until(lambda: versions(good)[-1:] == [2], "the second")
    assert "a worker's connection failed" in caplog.text


async def test_a_worker_that_reads_slowly_gets_the_latest_and_not_each(publisher: Publisher, paths: FleetPaths) -> None:
    reader, writer = await asyncio.open_unix_connection(str(paths.control_socket), limit=1024)
    large = 20_000  # some 2 MB: more than the socket's buffers hold
    for version in range(1, 30):
        publisher.publish(snapshot(version, models=large))
        await asyncio.sleep(0)
    decoder = control_channel.Decoder()
    seen: list[int] = []
    while not seen or seen[-1] < 29:
        for message in decoder.feed(await reader.read(1024 * 1024)):
            assert isinstance(message, SnapshotPublished)
            seen.append(message.snapshot.version)
    assert len(seen) < 10
    writer.close()


async def test_it_takes_the_place_of_a_controller_that_was_killed(paths: FleetPaths, listening: Listen) -> None:
    first = Publisher(paths.control_socket, lambda message: None)
    await first.start()
    second = Publisher(paths.control_socket, lambda message: None)
    await second.start()
    second.publish(snapshot(5))
    async with listening() as worker:
        await wait_until(lambda: versions(worker) == [5], "the second's")
    await second.close()
    assert not paths.control_socket.exists()
    await first.close()


async def test_closing_ends_the_connections_and_leaves_no_task(publisher: Publisher, listening: Listen) -> None:
    async with listening() as worker:
        await wait_until(lambda: bool(publisher.workers), "the worker")
        await publisher.close()
        await wait_until(lambda: worker.ended, "the end")
        assert publisher.workers == ()


async def test_a_place_that_cannot_be_listened_at_is_told(paths: FleetPaths) -> None:
    publisher = Publisher(paths.runtime_dir / "missing" / "control.sock", lambda message: None)
    with pytest.raises(PilothouseError, match=r"control\.sock: ") as failed:
        await publisher.start()
    assert failed.value.code == "state_unreadable"
    await publisher.close()
