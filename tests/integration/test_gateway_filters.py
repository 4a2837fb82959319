"""Filters in the data plane, in front of a fake engine. Complaints of the field (T4) are named in their tests."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from data_plane import ENGINE_KEY, MODEL, chat, data_plane, request, snapshot
from filter_cases import everything
from pilothouse.model.filters import Action, FilterSpec
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.ids import FleetName
from pilothouse.policy.redaction.matcher import Matcher
from pilothouse.telemetry import catalogue
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script
from pilothouse.wire import sse

pytestmark = pytest.mark.asyncio

CHAT = "/v1/chat/completions"
SAID = "Write to jane.doe@example.com or call +44 20 7946 0958 today, please."
REDACTED = "Write to [EMAIL_1] or call [PHONE_1] today, please."


def engine(**more: Any) -> FakeEngine:
    known = {"served_model_names": (MODEL,), "api_key": ENGINE_KEY, "time_scale": 0.01, "step_base_ms": 1.0, **more}
    return FakeEngine(EngineOptions(**known))


def fleet(port: int, *filters: FilterSpec, **deployment: Any) -> FleetSnapshot:
    return msgspec.structs.replace(snapshot([port], **deployment), filters=filters)


def filtering(action: Action, **more: Any) -> FilterSpec:
    return msgspec.structs.replace(everything(action), **more)


def of_path(path: str, **fields: object) -> dict[str, object]:
    """A small request of the dialect of a route."""
    if path == CHAT:
        return chat(**fields)  # type: ignore[arg-type]
    if path == "/v1/completions":
        return {"model": MODEL, "prompt": "hi", "max_tokens": 64, **fields}
    if path == "/v1/responses":
        return {"model": MODEL, "input": "hi", **fields}
    return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 64, **fields}


def text_of(path: str, events: list[dict[str, Any]]) -> str:
    """What the events of a stream say."""
    said = ""
    for each in events:
        if path == CHAT:
            said += "".join(choice["delta"].get("content") or "" for choice in each.get("choices", ()))
        elif path == "/v1/completions":
            said += "".join(choice["text"] for choice in each.get("choices", ()))
        elif path == "/v1/responses":
            said += each["delta"] if each["type"] == "response.output_text.delta" else ""
        else:
            said += each["delta"].get("text", "") if each["type"] == "content_block_delta" else ""
    return said


def text_of_answer(path: str, answer: Any) -> str:
    """What an answer that is not streamed says."""
    if path == CHAT:
        return str(answer["choices"][0]["message"]["content"])
    if path == "/v1/completions":
        return str(answer["choices"][0]["text"])
    content = answer["output"][0]["content"] if path == "/v1/responses" else answer["content"]
    return str(content[0]["text"])


def decoded(body: bytes) -> list[dict[str, Any]]:
    datas = [sse.data_of(each) for each in sse.split(body)]
    return [json.loads(data) for data in datas if data and data != b"[DONE]"]


PATHS = (CHAT, "/v1/completions", "/v1/responses", "/v1/messages")


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_and_an_answer_of_each_dialect_are_redacted(path: str, tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.REDACT)), tmp_path) as plane:
        upstream.script(Script(text=SAID), times=2)
        streamed = await plane.ask(path, of_path(path, stream=True))
        whole = await plane.ask(path, of_path(path))

        assert streamed.status == whole.status == 200
        assert text_of(path, decoded(streamed.body)) == REDACTED
        assert text_of_answer(path, whole.json()) == REDACTED
        assert b"jane" not in streamed.body + whole.body
        found = {entity: plane.count(catalogue.FILTER_MATCHES, entity=entity, action="redact", direction="output",
                                     model=MODEL) for entity in ("email", "phone")}  # fmt: skip
        assert found["email"] >= 2
        assert found["phone"] >= 2
        assert plane.ended("ok") == 2


@pytest.mark.parametrize("path", PATHS)
async def test_litellm_38734_a_blocked_stream_ends_in_its_dialect_in_every_dialect(path: str, tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.BLOCK)), tmp_path) as plane:
        upstream.script(Script(text=SAID))
        answer = await plane.ask(path, of_path(path, stream=True))
        events = decoded(answer.body)

        assert answer.status == 200
        assert text_of(path, events) == "Write to "
        assert (b'"stop_reason":"refusal"' if path == "/v1/messages" else b"content_filter") in answer.body
        assert b"jane" not in answer.body
        assert "error" in events[-1] or events[-1]["type"] == "error"
        assert plane.ended("content_filter") == 1
        assert plane.turns()[0].output_tokens > 0
        # The engine was stopped, and the connection to the client is good for another request.
        assert upstream.state().in_flight == 0
        assert plane.count(catalogue.FILTER_MATCHES, entity="email", action="block") == 1


@pytest.mark.parametrize("path", PATHS)
async def test_a_blocked_answer_is_an_error_with_a_status(path: str, tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.BLOCK)), tmp_path) as plane:
        upstream.script(Script(text=SAID))
        answer = await plane.ask(path, of_path(path))

        assert answer.status == 400
        assert b"email" in answer.body
        assert b"jane" not in answer.body
        assert plane.ended("content_filter") == 1
        assert plane.turns()[0].output_tokens > 0


async def test_requests_are_redacted_before_the_engine_sees_them(tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.REDACT)), tmp_path) as plane:
        body = chat(messages=[{"role": "user", "content": "I am jane.doe@example.com"}])
        upstream.script(Script(text="You are jane.doe@example.com."))
        answer = await plane.ask(CHAT, body)

        seen = json.loads(upstream.requests[-1].body)
        assert seen["messages"][0]["content"] == "I am [EMAIL_1]"
        # The same value has the same name in the answer of the turn.
        assert text_of_answer(CHAT, answer.json()) == "You are [EMAIL_1]."
        assert plane.count(catalogue.FILTER_MATCHES, entity="email", direction="input") == 1


async def test_blocked_requests_never_reach_the_engine(tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.BLOCK)), tmp_path) as plane:
        for path, text in ((CHAT, "messages"), ("/v1/messages", "messages"), ("/v1/embeddings", "input")):
            said: object = "a@b.io" if text == "input" else [{"role": "user", "content": "a@b.io"}]
            answer = await plane.ask(path, {"model": MODEL, "max_tokens": 1, text: said})
            assert answer.status == 400
            assert b"content_filter" in answer.body or answer.json()["type"] == "error"
        # Half a surrogate pair, and a key twice, are no way around.
        halved = b'{"model":"%b","messages":[{"role":"user","content":"\\ud800 a@b.io"}]}' % MODEL.encode()
        twice = b'{"model":"%b","messages":[{"role":"user","content":"a@b.io","content":"x"}]}' % MODEL.encode()
        assert (await plane.ask(CHAT, halved)).code == "invalid_json"
        assert (await plane.ask(CHAT, twice)).code == "duplicate_key"
        assert upstream.requests == ()


async def test_filters_are_of_models_and_tenants_and_the_strictest_wins(tmp_path: Path) -> None:
    others = filtering(Action.BLOCK, tenants=("others",))
    elsewhere = filtering(Action.BLOCK, models=("other-model",))
    ours = filtering(Action.MASK, tenants=("tests",), output={"email": Action.MASK}, input={})
    for_all = FilterSpec(name="x", output={"phone": Action.REDACT, "email": Action.MONITOR})
    async with (
        engine() as upstream,
        data_plane(fleet(upstream.port, others, elsewhere, ours, for_all), tmp_path) as plane,
    ):
        upstream.script(Script(text=SAID))
        answer = await plane.ask(CHAT, chat(stream=True))
        assert text_of(CHAT, decoded(answer.body)) == "Write to ****.***@******e.com or call [PHONE_1] today, please."


async def test_without_filters_of_its_own_a_turn_takes_the_usual_path(tmp_path: Path) -> None:
    others = filtering(Action.BLOCK, tenants=("others",))
    async with engine() as upstream, data_plane(fleet(upstream.port, others), tmp_path) as plane:
        upstream.script(Script(text=SAID))
        answer = await plane.ask(CHAT, chat(stream=True))
        assert text_of(CHAT, decoded(answer.body)) == SAID
        entry = plane.plane.table.models[MODEL]
        assert entry.filters is not None
        assert entry.filters.of("tests") is None


@pytest.mark.parametrize("fail_open", [False, True])
async def test_litellm_30728_a_broken_detector_fails_closed_unless_declared(
    fail_open: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = FilterSpec(name="x", output={"email": Action.REDACT}, input={"email": Action.REDACT}, fail_open=fail_open)
    async with engine() as upstream, data_plane(fleet(upstream.port, spec), tmp_path) as plane:

        def broken(*_: object) -> None:
            raise RuntimeError("jane.doe@example.com")

        monkeypatch.setattr(Matcher, "triggered", broken)
        asked = chat(stream=True, messages=[{"role": "user", "content": "mail: 1"}])
        answer = await plane.ask(CHAT, asked)
        assert (answer.status, plane.ended("filter_failed")) == ((200, 0) if fail_open else (500, 1))
        assert b"jane" not in answer.body
        assert len(upstream.requests) == fail_open
        upstream.script(Script(text=SAID), times=2)
        only_output = msgspec.structs.replace(spec, input={})
        plane.plane.apply(msgspec.structs.replace(fleet(upstream.port, only_output), version=2))
        for stream in (True, False):
            answer = await plane.ask(CHAT, chat(stream=stream))
            assert (b"jane" in answer.body or "jane" in text_of(CHAT, decoded(answer.body))) is fail_open
            assert (b"filter_failed" in answer.body) is not fail_open


async def test_a_filter_that_cannot_be_compiled_refuses_the_turns_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("too large")

    monkeypatch.setattr(Matcher, "__init__", broken)
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.REDACT)), tmp_path) as plane:
        assert (await plane.ask(CHAT, chat())).code == "filter_failed"
        assert upstream.requests == ()


async def test_litellm_31503_aisix_694_text_arrives_while_the_engine_still_writes(tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.REDACT)), tmp_path) as plane:
        upstream.script(Script(text="one two three four five six " * 4, stall_after=10))
        wire = await plane.send(request(CHAT, chat(stream=True)))
        await wire.head()
        seen = ""
        while "one two three four five six" not in seen:
            seen += text_of(CHAT, decoded(await wire.chunk()))
        assert upstream.state().in_flight == 1
        wire.abort()


async def test_litellm_41611_a_value_in_two_reads_is_not_leaked_when_the_engine_stalls(tmp_path: Path) -> None:
    spec = filtering(Action.REDACT, stall_s=1.0)
    async with engine() as upstream, data_plane(fleet(upstream.port, spec), tmp_path) as plane:
        upstream.script(Script(text="mail jane.doe@example.com now", stall_after=5))
        wire = await plane.send(request(CHAT, chat(stream=True)))
        await wire.head()
        seen = b""
        while b"mail" not in seen:
            seen += await wire.chunk()
        await asyncio.sleep(0.05)
        plane.turn(2)  # what is open is treated as found, and the turn goes on
        assert plane.in_flight()[0] == 1
        seen += await wire.chunk()
        plane.turn(1000)
        while piece := await wire.chunk():
            seen += piece
        assert b"jane" not in seen
        assert decoded(seen)[-1]["error"]["code"] == "replica_timeout"


async def test_aisix_760_monitoring_changes_and_holds_nothing(tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.MONITOR)), tmp_path) as plane:
        upstream.script(Script(text=SAID), times=2)
        answer = await plane.ask(CHAT, chat(stream=True))
        assert text_of(CHAT, decoded(answer.body)) == SAID
        # One event of a token each: none was joined to another or cut.
        contents = [each["choices"][0]["delta"].get("content") for each in decoded(answer.body) if each["choices"]]
        assert max(len(each or "") for each in contents) <= 4
        assert plane.count(catalogue.FILTER_MATCHES, entity="email", action="monitor") == 1


async def test_litellm_20027_litellm_28316_nothing_is_lost_or_redacted_twice(tmp_path: Path) -> None:
    text = "".join(f"{number}, " for number in range(200)) + REDACTED
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.REDACT)), tmp_path) as plane:
        upstream.script(Script(text=text))
        answer = await plane.ask(CHAT, chat(stream=True))
        assert text_of(CHAT, decoded(answer.body)) == text


async def test_aisix_204_aisix_466_streams_are_checked_and_before_they_are_sent(tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.BLOCK)), tmp_path) as plane:
        upstream.script(Script(text=SAID, split=(7,)))
        wire = await plane.send(request(CHAT, chat(stream=True)))
        answer = await wire.answer()
        assert text_of(CHAT, decoded(answer.body)) == "Write to "
        # The connection is not broken off: it takes the next request.
        wire.writer.write(request("/v1/models", method="GET"))
        assert (await wire.answer()).status == 200


async def test_every_place_where_tcp_may_cut(tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.REDACT)), tmp_path) as plane:
        for size in (1, 2, 3, 5, 17, 64, 301):
            upstream.script(Script(text=SAID, split=(size,)))
            answer = await plane.ask(CHAT, chat(stream=True, n=2))
            events = decoded(answer.body)
            for index in (0, 1):
                mine = [
                    {"choices": [choice for choice in each["choices"] if choice["index"] == index]} for each in events
                ]
                assert text_of(CHAT, mine) == REDACTED


async def test_what_an_engine_says_in_place_of_an_answer_is_filtered(tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.REDACT)), tmp_path) as plane:
        upstream.script(Script(status=400, body={"error": {"message": "no such thing as a@b.io", "code": 400}}))
        upstream.script(Script(status=500, body="text about a@b.io"))
        upstream.script(Script(error_after=0, error={"error": {"message": "bad: a@b.io", "code": 429}}))
        refused, broken, told = [await plane.ask(CHAT, chat(stream=True)) for _ in range(3)]
        assert refused.json()["error"]["message"] == "no such thing as [EMAIL_1]"
        assert broken.body == b"text about [EMAIL_1]"
        assert (told.status, told.json()["error"]["message"]) == (429, "bad: [EMAIL_1]")


async def test_an_answer_or_event_that_cannot_be_searched_fails_closed(tmp_path: Path) -> None:
    stream = {"content-type": "text/event-stream"}
    opening = b'data: {"choices":[{"index":0,"delta":{"content":"hi "}}]}\n\n'.decode()
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.REDACT)), tmp_path) as plane:
        upstream.script(Script(status=200, body="no JSON, a@b.io"))
        assert (await plane.ask(CHAT, chat())).code == "filter_failed"
        upstream.script(Script(status=200, body=opening + "data: a@b.io, no JSON\n\n", headers=stream))
        answer = await plane.ask(CHAT, chat(stream=True))
        assert decoded(answer.body)[-1]["error"]["code"] == "filter_failed"
        huge = 'data: {"x":"a@b.io ' + "y" * (2 << 20) + '"}\n\n'
        upstream.script(Script(status=200, body=opening + huge, headers=stream))
        answer = await plane.ask(CHAT, chat(stream=True))
        assert b"a@b" not in answer.body
        assert decoded(answer.body)[-1]["error"]["code"] == "filter_failed"
        upstream.script(Script(status=200, body='{"choices":[],"x":"' + "y" * (9 << 20) + '"}'))
        assert (await plane.ask(CHAT, chat())).code == "filter_failed"


async def test_an_answer_larger_than_is_usually_gathered_is_filtered(tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.REDACT)), tmp_path) as plane:
        body = {"choices": [{"index": 0, "message": {"content": "clean words " * 150_000 + "a@b.io"}}]}
        upstream.script(Script(status=200, body=body))
        answer = await plane.ask(CHAT, chat())
        assert answer.json()["choices"][0]["message"]["content"].endswith("words [EMAIL_1]")


async def test_a_client_that_leaves_gives_everything_back(tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.REDACT)), tmp_path) as plane:
        upstream.script(Script(text=SAID, stall_after=6))
        wire = await plane.send(request(CHAT, chat(stream=True)))
        await wire.head()
        wire.abort()
        give_up = time.monotonic() + 5
        while upstream.state().in_flight or plane.ended("client_disconnected") == 0:
            assert time.monotonic() < give_up
            await asyncio.sleep(0.005)


async def test_an_answer_assembled_from_a_stream_is_filtered(tmp_path: Path) -> None:
    async with (
        engine() as upstream,
        data_plane(fleet(upstream.port, filtering(Action.REDACT), progress_field="return_progress"), tmp_path) as plane,
    ):
        upstream.script(Script(text=SAID))
        answer = await plane.ask(CHAT, chat())
        assert text_of_answer(CHAT, answer.json()) == REDACTED


async def test_filters_travel_in_the_snapshot_and_compiled_ones_are_kept(tmp_path: Path) -> None:
    async with engine() as upstream, data_plane(fleet(upstream.port, filtering(Action.REDACT)), tmp_path) as plane:
        before = plane.plane.table.filters
        again = msgspec.json.decode(msgspec.json.encode(fleet(upstream.port, filtering(Action.REDACT))),
                                    type=FleetSnapshot)  # fmt: skip
        plane.plane.apply(again)
        assert plane.plane.table.filters is before
        plane.plane.apply(msgspec.structs.replace(again, filters=(filtering(Action.REDACT, name="renamed"),)))
        assert plane.plane.table.filters is not before
        assert next(iter(plane.plane.table.filters.compiled.values())) in before.compiled.values()
        empty = FleetSnapshot(fleet=FleetName("tests"), version=3)
        plane.plane.apply(empty)
        assert plane.plane.table.filters.of_model(MODEL) is None
