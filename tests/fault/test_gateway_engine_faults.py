"""Engines that fail, clients that go: every case ends once, and gives everything back."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_plane import ENGINE_KEY, MODEL, RunningPlane, Wire, chat, data_plane, request, settled, snapshot
from pilothouse.gateway.client_connection import WRITE_HIGH_WATER
from pilothouse.gateway.exchange import Exchange
from pilothouse.model.requests import Route
from pilothouse.model.spec import GatewayLimits, Timeouts
from pilothouse.policy.silence import SILENCES
from pilothouse.telemetry import catalogue
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script
from pilothouse.testing.processes import free_port

CHAT = "/v1/chat/completions"


def options(**fields: object) -> EngineOptions:
    known = {"served_model_names": (MODEL,), "api_key": ENGINE_KEY, "time_scale": 0.01, **fields}
    return EngineOptions(**known)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def one_engine(
    tmp_path: Path, limits: GatewayLimits | None = None, **deployment: Any
) -> AsyncIterator[tuple[FakeEngine, RunningPlane]]:
    async with FakeEngine(options()) as engine, contextlib.AsyncExitStack() as stack:
        fleet = snapshot([engine.port], **deployment)
        yield engine, await stack.enter_async_context(data_plane(fleet, tmp_path, limits))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the test's own time-out is the limit."""
    while not condition():  # noqa: ASYNC110 - what is waited for happens elsewhere
        await asyncio.sleep(0.005)


def events(body: bytes) -> list[object]:
    """The data of each event of a whole stream, decoded."""
    assert body.endswith(b"\n\n")
    found = []
    for event in body.removesuffix(b"\n\n").split(b"\n\n"):
        data = event.split(b"data: ", 1)[1]
        found.append("[DONE]" if data == b"[DONE]" else json.loads(data))
    return found


@pytest.mark.asyncio
async def test_a_long_string_that_is_no_json_is_found_where_the_body_has_to_be_edited(tmp_path: Path) -> None:
    data = msgspec.json.encode(chat(priority=9, user="x" * 40_000)).replace(b"xxx", b"x\nx", 1)
    async with one_engine(tmp_path) as (engine, plane):
        answer = await plane.ask(CHAT, data)
        assert (answer.status, answer.code) == (400, "invalid_json")
        assert not engine.requests
        assert plane.in_flight() == (0, 0)


def has_usage(event: object) -> bool:
    return isinstance(event, dict) and event.get("usage") is not None


# Usage


@pytest.mark.asyncio
async def test_usage_is_asked_for_counted_and_not_shown(tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        answer = await plane.ask(CHAT, chat(stream=True, max_tokens=7))
        assert engine.requests[-1].json()["stream_options"] == {"include_usage": True}
        seen = events(answer.body)
        assert seen[-1] == "[DONE]"
        assert not any(map(has_usage, seen))
        assert plane.count(catalogue.TOKENS, kind="output") == 7
        assert plane.count(catalogue.TIME_TO_FIRST_TOKEN) == 1
        assert plane.count(catalogue.INTER_TOKEN_LATENCY) == 1


@pytest.mark.asyncio
async def test_usage_that_the_client_asked_for_is_shown(tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        body = chat(stream=True, max_tokens=7, stream_options={"include_usage": True})
        answer = await plane.ask(CHAT, body)
        assert engine.requests[-1].json() == body
        assert [event["usage"]["completion_tokens"] for event in events(answer.body) if has_usage(event)] == [7]  # type: ignore[index]
        assert plane.count(catalogue.TOKENS, kind="output") == 7


@pytest.mark.asyncio
async def test_a_name_that_leads_to_a_metadata_service_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilothouse.gateway.upstream.leads_to_metadata", lambda address: address == "127.0.0.1")
    async with one_engine(tmp_path) as (engine, plane):
        assert (await plane.ask(CHAT, chat())).code == "replica_unreachable"
        assert not engine.requests
        assert plane.in_flight() == (0, 0)


# Engines that hear only by writing that their client has gone


@pytest.mark.asyncio
async def test_such_an_engine_is_asked_for_a_stream_and_the_client_gets_an_answer(tmp_path: Path) -> None:
    async with one_engine(tmp_path, progress_field="return_progress") as (engine, plane):
        plain = await plane.ask(CHAT, chat(max_tokens=7))
        asked = engine.requests[-1].json()
        assert asked["stream"] is asked["return_progress"] is asked["stream_options"]["include_usage"] is True
        assert plain.headers["content-type"] == "application/json"
        answer = plain.json()
        assert answer["object"] == "chat.completion"
        assert answer["choices"][0]["message"]["role"] == "assistant"
        assert answer["choices"][0]["message"]["content"]
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 7
        assert plane.count(catalogue.TOKENS, kind="output") == 7
        assert plane.in_flight() == (0, 0)


@pytest.mark.asyncio
async def test_a_stream_from_such_an_engine_is_a_stream(tmp_path: Path) -> None:
    async with one_engine(tmp_path, progress_field="return_progress") as (engine, plane):
        answer = await plane.ask(CHAT, chat(stream=True, max_tokens=7))
        assert engine.requests[-1].json()["return_progress"] is True
        assert not any(map(has_usage, events(answer.body)))
        await plane.ask("/v1/messages", {"model": MODEL, "messages": [], "max_tokens": 3})
        assert "return_progress" not in engine.requests[-1].json(), "only where the field is known"


@pytest.mark.asyncio
@pytest.mark.parametrize("after", [0, 3])
async def test_an_error_in_an_answer_to_put_together_is_a_status(after: int, tmp_path: Path) -> None:
    async with one_engine(tmp_path, progress_field="return_progress") as (engine, plane):
        engine.script(Script(error_after=after, error={"error": {"message": "no", "code": 507}}))
        answer = await plane.ask(CHAT, chat(max_tokens=7))
        assert (answer.status, answer.json()["error"]["message"]) == (507, "no")
        engine.script(Script(close_after=after))
        assert (await plane.ask(CHAT, chat(max_tokens=7))).code == "replica_lost"
        engine.script(Script(status=400, body={"error": {"message": "bad"}}))
        assert (await plane.ask(CHAT, chat(max_tokens=7))).status == 400
        assert plane.in_flight() == (0, 0)


@pytest.mark.asyncio
async def test_a_client_that_leaves_ends_an_answer_that_is_put_together(tmp_path: Path) -> None:
    async with one_engine(tmp_path, progress_field="return_progress") as (engine, plane):
        engine.script(Script(stall_after=3))
        wire = await plane.send(request(CHAT, chat(max_tokens=7)))
        await until(lambda: plane.in_flight()[0] == 1)
        wire.abort()
        await until(lambda: plane.in_flight() == (0, 0))
        assert plane.count(catalogue.CLIENT_DISCONNECTS, phase="unary") == 1


@pytest.mark.asyncio
async def test_an_engine_without_stream_usage_is_not_asked(tmp_path: Path) -> None:
    async with one_engine(tmp_path, reports_stream_usage=False) as (engine, plane):
        assert (await plane.ask(CHAT, chat(stream=True))).status == 200
        assert "stream_options" not in engine.requests[-1].json()


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("line_ending", ["lf", "crlf"])
async def test_events_in_pieces_of_any_size_come_out_whole(size: int, line_ending: str, tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(Script(split=(size,), line_ending=line_ending, comment_every=2))  # type: ignore[arg-type]
        wire = await plane.send(request(CHAT, chat(stream=True, max_tokens=4)))
        await wire.head()
        pieces = []
        while piece := await wire.chunk():
            pieces.append(piece)
        boundary = b"\n\n" if line_ending == "lf" else b"\r\n\r\n"
        assert all(piece.endswith((boundary, boundary[:-1])) for piece in pieces), "no event is cut"
        text = b"".join(pieces)
        assert text.rstrip().endswith(b"data: [DONE]")
        assert b'"usage":{' not in text
        assert plane.count(catalogue.TOKENS, kind="output") == 4


@pytest.mark.asyncio
@pytest.mark.parametrize("usage", ["omit", "null"])
async def test_streams_without_usage_are_passed_on(usage: str, tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(Script(usage=usage))  # type: ignore[arg-type]
        answer = await plane.ask(CHAT, chat(stream=True, max_tokens=3))
        assert events(answer.body)[-1] == "[DONE]"
        assert plane.count(catalogue.TOKENS) == 0


@pytest.mark.asyncio
async def test_a_stream_without_its_last_event_is_passed_on(tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(Script(omit_done=True))
        answer = await plane.ask(CHAT, chat(stream=True, max_tokens=3))
        assert "[DONE]" not in events(answer.body)
        assert plane.ended("ok") == 1


# Failures of the engine


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_an_engines_own_errors_pass_unmodified(status: int, stream: bool, tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(Script(status=status, body={"error": {"message": "mine", "x": 1}}, headers={"Retry-After": "7"}))
        answer = await plane.ask(CHAT, chat(stream=stream))
        assert (answer.status, answer.json()) == (status, {"error": {"message": "mine", "x": 1}})
        assert answer.headers["retry-after"] == "7"
        assert plane.ended("engine_error") == 1


@pytest.mark.asyncio
async def test_an_error_event_before_content_is_a_status(tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        error = {"error": {"message": "no room", "code": 507}}
        engine.script(Script(error_after=0, error=error))
        answer = await plane.ask(CHAT, chat(stream=True))
        assert (answer.status, answer.json()) == (507, error)
        engine.script(Script(error_after=0, error={"error": {"message": "?"}}))
        assert (await plane.ask(CHAT, chat(stream=True))).status == 502


@pytest.mark.asyncio
async def test_an_error_event_after_content_stays_an_event(tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(Script(error_after=3, error={"error": {"message": "late"}}))
        answer = await plane.ask(CHAT, chat(stream=True))
        assert answer.status == 200
        assert {"error": {"message": "late"}} in events(answer.body)


@pytest.mark.asyncio
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_goes_before_it_answers_is_a_502(stream: bool, reset: bool, tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(Script(close_after_bytes=0, reset=reset))
        answer = await plane.ask(CHAT, chat(stream=stream))
        assert (answer.status, answer.code) == (502, "replica_lost")
        assert answer.headers["retry-after"] == "1"
        assert engine.state().requests_total == 1, "what may have killed one engine is not sent to another"


@pytest.mark.asyncio
async def test_an_engine_that_goes_after_the_head_and_before_content_is_a_502(tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(Script(close_after=0))
        answer = await plane.ask(CHAT, chat(stream=True))
        assert (answer.status, answer.code) == (502, "replica_lost")


@pytest.mark.asyncio
@pytest.mark.parametrize("cut", [700, 800, 813, 900, 1000, 1111])
async def test_an_engine_that_goes_mid_stream_ends_in_an_error_event(cut: int, tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(Script(close_after_bytes=cut))
        wire = await plane.send(request(CHAT, chat(stream=True, max_tokens=50)))
        answer = await wire.answer()
        assert answer.status == 200
        seen = events(answer.body)
        assert isinstance(seen[-1], dict)
        assert seen[-1]["error"]["code"] == "replica_lost"
        assert all(isinstance(event, dict) and "choices" in event for event in seen[:-1]), "only whole events"
        wire.writer.write(request("/livez", method="GET"))
        assert (await wire.answer()).status == 200, "the client's connection is still in step"
        assert plane.ended("replica_lost") == 1


@pytest.mark.asyncio
async def test_messages_end_in_their_own_error_event(tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(Script(close_after=3), path="/v1/messages")
        answer = await plane.ask("/v1/messages", chat(stream=True, max_tokens=50))
        last = answer.body.removesuffix(b"\n\n").split(b"\n\n")[-1]
        assert last.startswith(b"event: error\ndata: ")
        assert json.loads(last.split(b"data: ")[1])["type"] == "error"


@pytest.mark.asyncio
async def test_an_answer_that_is_cut_is_a_502_and_not_a_part(tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(Script(close_after_bytes=300))
        answer = await plane.ask(CHAT, chat(max_tokens=200))
        assert (answer.status, answer.code) == (502, "replica_lost")


@pytest.mark.asyncio
async def test_bad_chunks_are_a_protocol_error(tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(Script(malformed_chunk_after=3))
        answer = await plane.ask(CHAT, chat(stream=True, max_tokens=9))
        # A status or an event, as the bad chunk came with the first content or after it.
        assert answer.body.count(b'"code":"replica_protocol_error"') == 1
        assert plane.ended("replica_protocol_error") == 1


# Retries


@pytest.mark.asyncio
async def test_a_replica_that_refuses_is_passed_over(tmp_path: Path) -> None:
    async with FakeEngine(options()) as engine, contextlib.AsyncExitStack() as stack:
        fleet = snapshot([free_port(), engine.port])
        plane = await stack.enter_async_context(data_plane(fleet, tmp_path))
        told: list[str] = []
        plane.plane.report_suspicion = lambda replica, reason, silent: told.append(replica)
        answers = [(await plane.ask(CHAT, chat(max_tokens=2))).status for _ in range(20)]
        assert answers == [200] * 20
        assert told == ["fake-0"], "told once, then passed over while it is suspected"
        assert plane.count(catalogue.UPSTREAM_RETRIES, reason="connect_failed") == 1


@pytest.mark.asyncio
async def test_a_replica_that_hangs_is_found_and_taken_out(tmp_path: Path) -> None:
    async with FakeEngine(options()) as hung, FakeEngine(options()) as well, contextlib.AsyncExitStack() as stack:
        hung.script(Script(stall_after=0), times=100)
        plane = await stack.enter_async_context(data_plane(snapshot([hung.port, well.port]), tmp_path))
        told: list[tuple[str, bool]] = []
        plane.plane.report_suspicion = lambda replica, reason, silent: told.append((replica, silent))
        while ("fake-0", True) not in told:
            plane.turn(2)  # past the second for which it is passed over after one time-out
            seen = len(hung.requests)
            asked = asyncio.get_running_loop().create_task(plane.ask(CHAT, chat(max_tokens=1)))
            await asyncio.wait([asked], timeout=0.05)
            if len(hung.requests) > seen:
                plane.turn(700)
                assert (await asked).code == "replica_timeout"
            else:
                assert (await asked).status == 200
        assert len(hung.requests) == SILENCES
        answers = [(await plane.ask(CHAT, chat(max_tokens=1))).status for _ in range(20)]
        assert (answers, len(hung.requests)) == ([200] * 20, SILENCES)


@pytest.mark.asyncio
async def test_an_answer_between_two_time_outs_means_that_it_does_not_hang(tmp_path: Path) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        told: list[bool] = []
        plane.plane.report_suspicion = lambda replica, reason, silent: told.append(silent)
        for _ in range(SILENCES + 2):
            engine.script(Script(stall_after=0))
            asked = asyncio.get_running_loop().create_task(plane.ask(CHAT, chat(max_tokens=1)))
            await until(lambda: plane.in_flight()[0] == 1 and len(engine.requests) % 2 == 1)
            plane.turn(700)
            assert (await asked).code == "replica_timeout"
            assert (await plane.ask(CHAT, chat(max_tokens=1))).status == 200
        assert not any(told)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("rule", "script", "stream", "after_s", "message"),
    [
        (Timeouts(first_byte_s=5), Script(stall_after=0), False, 6, "did not begin to answer"),
        (Timeouts(idle_s=5), Script(stall_after=2), True, 6, "stopped answering"),
        (Timeouts(total_s=5), Script(stall_after=2), True, 6, "longer than 5 s"),
        (Timeouts(total_s=5), Script(stall_after=0), False, 6, "longer than 5 s"),
    ],
)
async def test_a_route_has_time_outs_of_its_own(
    rule: Timeouts, script: Script, stream: bool, after_s: float, message: str, tmp_path: Path
) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        fleet = snapshot([engine.port], version=2)
        model = msgspec.structs.replace(fleet.models[0], timeouts={Route.CHAT_COMPLETIONS: rule})
        plane.plane.apply(msgspec.structs.replace(fleet, models=(model,)))
        engine.script(script)
        started = time.monotonic_ns()
        wire = await plane.send(request(CHAT, chat(stream=stream, max_tokens=9)))
        await until(lambda: engine.state().running == 1)
        if stream:
            await wire.head()
            await wire.chunk()
        while (connection := next(iter(plane.plane.connections))).exchange is not None:
            assert isinstance(connection.exchange, Exchange)
            connection.exchange._read_at = min(connection.exchange._read_at, started - round(after_s * 1e9))
            plane.turn(after_s)
        text = b""
        while message.encode() not in text:
            piece = await wire.reader.read(65536)
            assert piece, text
            text += piece
        assert plane.ended("replica_timeout") == 1


@pytest.mark.asyncio
async def test_when_every_replica_refuses_it_is_a_502(tmp_path: Path) -> None:
    async with data_plane(snapshot([free_port(), free_port()]), tmp_path) as plane:
        answer = await plane.ask(CHAT, chat())
        assert (answer.status, answer.code) == (502, "replica_unreachable")


@pytest.mark.asyncio
async def test_a_stale_connection_is_replaced_without_a_word(tmp_path: Path) -> None:
    closed = 0

    async def close_on_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal closed
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            await reader.readuntil(b"\r\n\r\n")
            closed += 1
        writer.close()

    server = await asyncio.start_server(close_on_second, "127.0.0.1", 0)
    async with server, data_plane(snapshot([server.sockets[0].getsockname()[1]]), tmp_path) as plane:
        assert [(await plane.ask(CHAT, chat())).status for _ in range(4)] == [200] * 4
        assert closed >= 2
        assert plane.count(catalogue.UPSTREAM_RETRIES, reason="stale_connection") == closed


# Clients that go


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("stream", "script", "phase"),
    [
        (True, Script(delay_s=30), "before_first_byte"),
        (False, Script(delay_s=30), "unary"),
        (True, Script(stall_after=0), "before_first_byte"),
        (True, Script(stall_after=5), "streaming"),
        (False, Script(stall_after=5), "unary"),
    ],
)
@pytest.mark.parametrize("how", ["close", "abort", "half_close"])
async def test_t1_a_client_that_goes_stops_its_engine(
    stream: bool, script: Script, phase: str, how: str, tmp_path: Path
) -> None:
    async with one_engine(tmp_path) as (engine, plane):
        engine.script(script)
        wire = await plane.send(request(CHAT, chat(stream=stream, max_tokens=100)))
        await until(lambda: engine.state().in_flight == 1)
        if phase == "streaming":
            await wire.head()
            await wire.chunk()
        else:
            await asyncio.sleep(0.05)
        if how == "half_close":
            wire.writer.write_eof()
        elif how == "abort":
            wire.abort()
        else:
            wire.close()
        await settled(plane)
        await until(lambda: engine.state().in_flight == 0)
        assert engine.state().running == 0
        assert engine.state().kv.used == 0
        assert plane.count(catalogue.CLIENT_DISCONNECTS, phase=phase) == 1
        assert plane.ended("client_disconnected") == 1
        assert plane.count(catalogue.REQUESTS) == 1


@pytest.mark.asyncio
async def test_t1_a_client_that_goes_while_its_replica_is_being_connected(tmp_path: Path) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with silent, data_plane(snapshot([silent.sockets[0].getsockname()[1]]), tmp_path) as plane:
        wire = await plane.send(request(CHAT, chat()))
        await asyncio.sleep(0)
        wire.abort()
        await settled(plane)
        await asyncio.sleep(0.05)
        assert plane.ended("client_disconnected") + plane.ended("ok") == plane.count(catalogue.REQUESTS)


# Time


@pytest.mark.asyncio
async def test_time_outs_of_an_engine(tmp_path: Path) -> None:
    limits = GatewayLimits(first_byte_timeout_s=5, stream_idle_timeout_s=5)
    async with one_engine(tmp_path, limits) as (engine, plane):
        engine.script(Script(delay_s=60))
        late = asyncio.ensure_future(plane.ask(CHAT, chat()))
        await until(lambda: engine.state().in_flight == 1)
        plane.turn(7)
        assert (await late).code == "replica_timeout"
        engine.script(Script(stall_after=3))
        wire = await plane.send(request(CHAT, chat(stream=True, max_tokens=9)))
        await wire.head()
        await wire.chunk()
        await asyncio.sleep(0.1)
        plane.turn(7)
        pieces = []
        while piece := await wire.chunk():
            pieces.append(piece)
        last = events(b"".join(pieces))[-1]
        assert isinstance(last, dict)
        assert last["error"]["code"] == "replica_timeout"
        await until(lambda: engine.state().running == 0)


@pytest.mark.asyncio
@pytest.mark.parametrize("drip", [False, True])
async def test_a_head_has_to_come_in_time_also_byte_by_byte(drip: bool, tmp_path: Path) -> None:
    limits = GatewayLimits(head_timeout_s=5)
    async with data_plane(snapshot([1]), tmp_path, limits) as plane:
        wire = await plane.send(b"GET /livez HTT")
        await asyncio.sleep(0.02)
        plane.turn(3)
        if drip:
            wire.writer.write(b"P")
            await asyncio.sleep(0.02)
        plane.turn(4)
        answer = await wire.answer()
        assert (answer.status, answer.code) == (408, "request_timeout")


@pytest.mark.asyncio
async def test_a_body_has_to_keep_coming_and_an_idle_connection_ends(tmp_path: Path) -> None:
    limits = GatewayLimits(body_timeout_s=5, idle_timeout_s=5)
    async with data_plane(snapshot([1]), tmp_path, limits) as plane:
        slow = await plane.send(request(CHAT, chat())[:-4])
        await asyncio.sleep(0.02)
        plane.turn(7)
        assert (await slow.answer()).code == "request_timeout"
        idle = await plane.send(request("/livez", method="GET"))
        await idle.answer()
        plane.turn(7)
        assert await idle.reader.read() == b""


# Back-pressure


@pytest.mark.asyncio
async def test_a_client_that_does_not_read_holds_its_engine_back(tmp_path: Path) -> None:
    total = 64 * 1024 * 1024
    sent = 0
    event = b"data: " + b"x" * 65521 + b"\n\n"

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while sent < total:
                writer.write(event)
                await writer.drain()
                sent += len(event)
        writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    async with server, data_plane(snapshot([server.sockets[0].getsockname()[1]]), tmp_path) as plane:
        wire = await plane.send(request(CHAT, chat(stream=True)))
        wire.reader._transport.pause_reading()  # type: ignore[attr-defined]
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < total / 2, "the engine was held back"
        (connection,) = plane.plane.connections
        assert connection.transport.get_write_buffer_size() < 2 * 1024 * 1024
        wire.reader._transport.resume_reading()  # type: ignore[attr-defined]
        await wire.head()
        received = 0
        while piece := await wire.chunk():
            received += len(piece)
        assert received == sent


@pytest.mark.asyncio
async def test_a_client_that_never_reads_is_dropped(tmp_path: Path) -> None:
    limits = GatewayLimits(stream_idle_timeout_s=5)
    async with one_engine(tmp_path, limits) as (engine, plane):
        wire = await plane.send(request(CHAT, chat(stream=True, max_tokens=10)))
        await asyncio.sleep(0.1)
        (connection,) = plane.plane.connections
        if connection.exchange is not None:
            connection.pause_writing()
            plane.turn(7)
            await settled(plane)
            assert plane.ended("client_disconnected") == 1
        wire.abort()
        await until(lambda: engine.state().in_flight == 0)


@pytest.mark.asyncio
@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/livez", 200), ("POST", CHAT, 401)])
async def test_a_client_that_asks_and_never_reads_is_held_back(
    method: str, path: str, status: int, tmp_path: Path
) -> None:
    """Answers of our own cost a client nothing, not even a key: they must not pile up in our memory either."""
    padding = {"X-Padding": "x" * 10_000}  # so that no read has more requests than one may pipeline
    asked = request(path, method=method, key=None, headers=padding) * 2000
    async with one_engine(tmp_path) as (_, plane):
        with socket.socket() as small:
            small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            small.connect(("127.0.0.1", plane.port))
            wire = Wire(*await asyncio.open_connection(sock=small, limit=1024))
            await until(lambda: len(plane.plane.connections) == 1)
            (connection,) = plane.plane.connections
            connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            wire.writer.write(asked)
            await until(lambda: not connection.writable)
            await asyncio.sleep(0.3)
            assert connection.transport.get_write_buffer_size() < 2 * WRITE_HIGH_WATER
            assert wire.writer.transport.get_write_buffer_size() > 0, "it is not read from either"
            assert {(await wire.answer()).status for _ in range(2000)} == {status}
            wire.abort()
