"""What engines may send that is not as it should be, byte for byte: the client gets whole events or a proper error."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from data_plane import RunningPlane, chat, data_plane, snapshot
from pilothouse.telemetry import catalogue

pytestmark = pytest.mark.asyncio

CHAT = "/v1/chat/completions"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}


def event(text: str, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice], **more}, ensure_ascii=False).encode() + b"\n\n"


def last(**more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [], "usage": USAGE, **more}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + (b"0\r\n\r\n" if end else b"")


class RawEngine:
    """Answers every request with the same bytes, in pieces, and then closes or not."""

    def __init__(self, *pieces: bytes, close: bool = True, pause_s: float = 0.0) -> None:
        self._pieces = pieces
        self._close = close
        self._pause_s = pause_s
        self.port = 0
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                for piece in self._pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(self._pause_s)
                if self._close:
                    break
        writer.close()


@contextlib.asynccontextmanager
async def facing(engine: RawEngine, tmp_path: Path, **deployment: Any) -> AsyncIterator[RunningPlane]:
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
    engine.port = server.sockets[0].getsockname()[1]
    async with server, data_plane(snapshot([engine.port], **deployment), tmp_path) as plane:
        yield plane
    for writer in engine.writers:
        writer.transport.abort()
    await asyncio.sleep(0.01)  # the handlers' last steps


def bytewise(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


Ending = Callable[[bytes], bytes]
ENDINGS: dict[str, Ending] = {
    "lf": lambda data: data,
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
    "cr": lambda data: data.replace(b"\n", b"\r"),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("size", [1, 2, 5, 1000])
async def test_t5_lines_end_in_any_way_and_are_cut_anywhere(ending: str, size: int, tmp_path: Path) -> None:
    events = [b": ping\n\n", event("Grüße 🚢"), b"event: x\nid: 7\ndata: {\ndata: }\n\n", event("b"), DONE]
    text = ENDINGS[ending](b"".join(events))
    engine = RawEngine(
        STREAM, *[chunked(piece, end=False) for piece in bytewise(text, size)], b"0\r\n\r\n", close=False
    )
    async with facing(engine, tmp_path) as plane:
        answer = await plane.ask(CHAT, chat(stream=True))
        assert answer.body == text, "what the engine sent, and no event twice or cut"


async def test_t5_many_events_in_one_read_and_usage_among_them(tmp_path: Path) -> None:
    stream = event("a") + last() + event("b") + DONE
    async with facing(RawEngine(STREAM + chunked(stream), close=False), tmp_path) as plane:
        answer = await plane.ask(CHAT, chat(stream=True))
        assert answer.body == event("a") + event("b") + DONE
        assert plane.count(catalogue.TOKENS, kind="output") == 2


@pytest.mark.parametrize("size", [1, 7, 20])
async def test_t2_a_usage_event_split_over_reads_is_counted_and_taken_out(size: int, tmp_path: Path) -> None:
    pieces = [chunked(piece, end=False) for piece in bytewise(event("a") + last() + DONE, size)]
    async with facing(RawEngine(STREAM, *pieces, b"0\r\n\r\n", close=False), tmp_path) as plane:
        assert (await plane.ask(CHAT, chat(stream=True))).body == event("a") + DONE
        assert plane.count(catalogue.TOKENS, kind="output") == 2


async def test_t2_usage_on_an_event_with_choices_is_counted_and_the_event_stays(tmp_path: Path) -> None:
    """LiteLLM 36168: dropped, with its cached tokens, when its `choices` were not empty."""
    usage = {**USAGE, "prompt_tokens_details": {"cached_tokens": 1}}
    stream = event("a") + event("b", usage=usage) + DONE
    async with facing(RawEngine(STREAM + chunked(stream), close=False), tmp_path) as plane:
        answer = await plane.ask(CHAT, chat(stream=True))
        assert [json.loads(each[6:])["choices"][0]["delta"]["content"] for each in answer.body.split(b"\n\n")[:2]] == [
            "a",
            "b",
        ]
        assert b"usage" not in answer.body
        assert plane.count(catalogue.TOKENS, kind="cached") == 1


async def test_t2_zero_usage_is_zero_and_no_estimate(tmp_path: Path) -> None:
    """LiteLLM 37992: an explicit zero was replaced by an estimate."""
    stream = event("a") + last(usage={"prompt_tokens": 0, "completion_tokens": 0}) + DONE
    async with facing(RawEngine(STREAM + chunked(stream), close=False), tmp_path) as plane:
        await plane.ask(CHAT, chat(stream=True))
        assert plane.count(catalogue.TOKENS) == 0


@pytest.mark.parametrize("close", [True, False])
async def test_a_stream_without_its_done_ends_where_the_engine_ends_it(close: bool, tmp_path: Path) -> None:
    engine = (
        RawEngine(UNTIL_CLOSE + event("a") + event("b"))
        if close
        else RawEngine(STREAM + chunked(event("a")), close=False)
    )
    async with facing(engine, tmp_path) as plane:
        answer = await plane.ask(CHAT, chat(stream=True))
        assert (answer.status, answer.body) == (200, event("a") + (event("b") if close else b""))
        assert plane.ended("ok") == 1


async def test_a_last_event_without_its_empty_line_is_not_lost(tmp_path: Path) -> None:
    async with facing(RawEngine(STREAM + chunked(event("a"), b"data: [DONE]"), close=False), tmp_path) as plane:
        assert (await plane.ask(CHAT, chat(stream=True))).body == event("a") + b"data: [DONE]"


@pytest.mark.parametrize("cut", [0, 1, 10, 40])
async def test_t14_an_early_end_of_file_after_content_is_an_error_event_and_no_replay(cut: int, tmp_path: Path) -> None:
    first, second = event("a"), event("b")
    engine = RawEngine(
        STREAM + chunked(first, end=False), chunked(second[: len(second) - cut - 1], end=False), pause_s=0.05
    )
    async with facing(engine, tmp_path) as plane:
        answer = await plane.ask(CHAT, chat(stream=True))
        assert answer.status == 200
        assert answer.body.startswith(first)
        assert answer.body.count(b'"content": "a"') == 1
        assert json.loads(answer.body.rstrip().split(b"data: ")[-1])["error"]["code"] == "replica_lost"
        assert engine.connections == 1, "content has flowed: it is not asked for again"


async def test_t14_an_early_end_of_file_before_content_is_a_status(tmp_path: Path) -> None:
    role = b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
    async with facing(RawEngine(STREAM + chunked(role, end=False)), tmp_path) as plane:
        answer = await plane.ask(CHAT, chat(stream=True))
        assert (answer.status, answer.code) == (502, "replica_lost")


async def test_t14_an_error_frame_inside_a_stream_stays_where_it_is(tmp_path: Path) -> None:
    error = b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
    async with facing(RawEngine(STREAM + chunked(event("a"), error, DONE), close=False), tmp_path) as plane:
        answer = await plane.ask(CHAT, chat(stream=True))
        assert (answer.status, answer.body) == (200, event("a") + error + DONE)


async def test_t14_an_error_frame_before_content_is_a_status_also_in_the_messages_dialect(tmp_path: Path) -> None:
    """LiteLLM 38610: 200 and message_start were sent, then the error."""
    start = b'event: message_start\ndata: {"type": "message_start", "message": {}}\n\n'
    error = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "code": 529}}\n\n'
    async with facing(RawEngine(STREAM + chunked(start, error), close=False), tmp_path) as plane:
        answer = await plane.ask(
            "/v1/messages", {"model": "fake-model", "messages": [], "stream": True, "max_tokens": 1}
        )
        assert (answer.status, answer.json()["error"]["type"]) == (529, "overloaded_error")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnope\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
    ids=["two lengths", "both", "bad chunk", "negative", "bare lf", "not http", "upgrade", "huge head"],
)
async def test_bad_framing_is_a_502_and_the_connection_is_not_used_again(answer: bytes, tmp_path: Path) -> None:
    engine = RawEngine(answer, close=False)
    async with facing(engine, tmp_path) as plane:
        for _ in range(2):
            found = await plane.ask(CHAT, chat())
            assert (found.status, found.code) == (502, "replica_protocol_error")
        assert engine.connections == 2


async def test_what_follows_an_answer_unasked_does_not_become_the_next_ones(tmp_path: Path) -> None:
    """A desynchronised connection would give one client another's answer."""
    evil = b'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n"evil"'
    engine = RawEngine(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" + evil, close=False)
    async with facing(engine, tmp_path) as plane:
        for _ in range(3):
            assert (await plane.ask(CHAT, chat())).body == b"{}"
        assert engine.connections == 3
    late = RawEngine(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", evil, close=False, pause_s=0.05)
    async with facing(late, tmp_path) as plane:
        assert (await plane.ask(CHAT, chat())).body == b"{}"
        await asyncio.sleep(0.2)
        assert (await plane.ask(CHAT, chat())).body == b"{}"
        assert late.connections == 2


@pytest.mark.parametrize("reset", [False, True])
async def test_only_a_proper_close_ends_a_body_without_a_length(reset: bool, tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    engine = RawEngine(head, b'{"a": 1}', close=not reset)
    async with facing(engine, tmp_path) as plane:
        asking = asyncio.ensure_future(plane.ask(CHAT, chat()))
        if reset:
            await asyncio.sleep(0.1)
            socket_ = engine.writers[0].get_extra_info("socket")
            socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            engine.writers[0].transport.abort()
        answer = await asking
        assert (answer.status, answer.body) == (200, b'{"a": 1}') if not reset else answer.code == "replica_lost"


async def test_interim_responses_are_not_the_clients(tmp_path: Path) -> None:
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    engine = RawEngine(hints + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", close=False)
    async with facing(engine, tmp_path) as plane:
        answer = await plane.ask(CHAT, chat())
        assert (answer.status, answer.body, "link" in answer.headers) == (200, b"{}", False)


async def test_a_compressed_answer_passes_as_it_is(tmp_path: Path) -> None:
    """It was not asked for: `accept-encoding` does not reach engines. Who sends it all the same gets it passed on."""
    body = bytes(range(256))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with facing(RawEngine(head + body, close=False), tmp_path) as plane:
        answer = await plane.ask(CHAT, chat())
        assert (answer.body, answer.headers["content-encoding"]) == (body, "gzip")


async def test_t13_one_event_of_megabytes_passes(tmp_path: Path) -> None:
    large = event("x" * 3_000_000)
    async with facing(RawEngine(STREAM + chunked(event("a"), large, DONE), close=False), tmp_path) as plane:
        assert (await plane.ask(CHAT, chat(stream=True))).body == event("a") + large + DONE


async def test_t13_prompts_of_200_kb_and_answers_of_megabytes_pass(tmp_path: Path) -> None:
    body = json.dumps({"text": "y" * 2_500_000, "usage": USAGE}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with facing(RawEngine(head + body, close=False), tmp_path) as plane:
        prompt = chat(messages=[{"role": "user", "content": "z" * 200_000}])
        assert (await plane.ask(CHAT, prompt)).body == body
