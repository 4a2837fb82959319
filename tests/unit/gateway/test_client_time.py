"""Time-outs of clients, in a world whose time is the test's: each is for what the client does, and nothing else."""

from collections.abc import Iterator

import pytest

from pilothouse.model.units import SECOND, DurationNs
from plane_world import Client, Engine, PlaneWorld

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
IDLE = 75 * SECOND  # the limit's default, as all times here


@pytest.fixture
def world() -> Iterator[PlaneWorld]:
    found = PlaneWorld()
    yield found
    found.close()


def asking(world: PlaneWorld, *, stream: bool = False, headers: bytes = b"") -> Client:
    """A client that has asked, and waits for a connection to an engine."""
    world.connect_client()
    client = world.clients[-1]
    client.ask(stream=stream)
    client.unsent = client.unsent.replace(b"Host: tests\r\n", b"Host: tests\r\n" + headers)
    return client


def engine_of(world: PlaneWorld) -> Engine:
    world.connected(world.waiting[0])
    return world.engines[-1]


def test_a_request_at_the_end_of_the_idle_time_has_its_own_time_to_connect(world: PlaneWorld) -> None:
    client = asking(world)
    world.pass_time(DurationNs(IDLE - SECOND))
    client.send(100_000)
    world.pass_time(DurationNs(SECOND))
    assert client.answered == []
    engine = engine_of(world)
    engine.answer(ANSWER)
    engine.send(100_000)
    assert client.answered == [(200, b"{}")]


def test_an_exchange_that_never_hears_of_its_connection_ends_all_the_same(world: PlaneWorld) -> None:
    client = asking(world)
    client.send(100_000)
    world.pass_time(DurationNs(4 * SECOND))
    assert [status for status, _ in client.answered] == [504]


def test_a_slow_reader_gets_its_last_answer_whole(world: PlaneWorld) -> None:
    client = asking(world, headers=b"Connection: close\r\n")
    client.send(100_000)
    engine = engine_of(world)
    client.transport.become_slow()
    engine.answer(ANSWER)
    engine.send(100_000)
    world.pass_time(DurationNs(10 * SECOND))
    client.transport.catch_up()
    assert client.answered == [(200, b"{}")]
    world.turn_loop()
    assert not world.clients


def test_but_not_one_that_reads_nothing_for_the_idle_time(world: PlaneWorld) -> None:
    client = asking(world, headers=b"Connection: close\r\n")
    client.send(100_000)
    engine = engine_of(world)
    client.transport.become_slow()
    engine.answer(ANSWER)
    engine.send(100_000)
    world.pass_time(DurationNs(3 * SECOND))
    world.pass_time(DurationNs(IDLE))
    world.turn_loop()
    assert not world.clients


@pytest.mark.parametrize("kind", ["events", "large"])
def test_an_engine_waits_for_a_client_that_was_slow_before_its_answer_began(world: PlaneWorld, kind: str) -> None:
    client = asking(world, stream=kind == "events")
    client.send(100_000)
    engine = engine_of(world)
    client.transport.become_slow()
    if kind == "events":
        event = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        engine.answer(head + b"%x\r\n%b\r\n" % (len(event), event))
    else:
        engine.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 2_000_000)
    engine.send(3_000_000)
    assert not engine.transport.reads
    client.transport.catch_up()
    assert engine.transport.reads
