"""Streams of every dialect through the filter."""

import gc
import json
from collections.abc import Iterable
from typing import Any

import pytest

from filter_cases import TRUE, everything
from pilothouse.model.errors import Refusal
from pilothouse.model.filters import Action, FilterSpec
from pilothouse.policy.redaction import matcher
from pilothouse.policy.redaction.compiled import Channel, CompiledFilter, compile_filters
from pilothouse.wire import sse
from pilothouse.wire.filtered_body import filter_request
from pilothouse.wire.filtered_stream import FilteredStream

REDACT = compile_filters([everything(Action.REDACT)], direction="output")
BLOCK = compile_filters([everything(Action.BLOCK)], direction="output")
MONITOR = compile_filters([everything(Action.MONITOR)], direction="output")


def event(fields: dict[str, Any], name: str | None = None) -> bytes:
    return sse.event(json.dumps(fields).encode(), name.encode() if name else None)


def chat(delta: dict[str, Any], index: int = 0, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish, **more}
    return event({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


def content(text: str, index: int = 0) -> bytes:
    return chat({"content": text}, index)


def arguments(text: str, call: int = 0) -> bytes:
    return chat({"tool_calls": [{"index": call, "function": {"arguments": text}}]})


END = chat({}, finish="stop") + b"data: [DONE]\n\n"


def run(compiled: CompiledFilter, events: Iterable[bytes]) -> tuple[bytes, FilteredStream]:
    stream = FilteredStream(compiled, request_id="req")
    out = b"".join([*(stream.feed(each) for each in events), stream.close()])
    return out, stream


def decoded(out: bytes) -> list[dict[str, Any]]:
    datas = [sse.data_of(each) for each in sse.split(out)]
    return [json.loads(data) for data in datas if data and data != b"[DONE]"]


def texts(out: bytes, field: str = "content", index: int = 0) -> str:
    found = ""
    for each in decoded(out):
        for choice in each.get("choices", ()):
            if choice["index"] == index:
                found += choice.get("delta", {}).get(field) or ""
    return found


def called(out: bytes) -> str:
    found = ""
    for each in decoded(out):
        for choice in each.get("choices", ()):
            for call in choice["delta"].get("tool_calls", ()):
                found += call["function"].get("arguments", "")
    return found


def test_clean_events_go_on_byte_for_byte() -> None:
    events = [
        chat({"role": "assistant", "content": ""}),
        *map(content, ("Hello", " there", ", how", " are", " you?")),
        END,
    ]

    assert run(REDACT, events)[0] == b"".join(events)


def test_a_clean_event_waits_for_the_next_one_at_most() -> None:
    stream = FilteredStream(REDACT)
    events = [content(text) for text in ("The", " quick", " brown", " fox")]
    assert [stream.feed(each) for each in events] == [b"", *events[:3]]


def test_events_of_one_read_and_comments() -> None:
    events = b": keep-alive\n\n" + content("a ") + content("b@c.io ") + content("d.") + END
    out, _ = run(REDACT, [events])

    assert out.startswith(b": keep-alive\n\n")
    assert texts(out) == "a [EMAIL_1] d."


@pytest.mark.parametrize(("entity", "before", "value"), TRUE)
def test_in_a_chat_stream_cut_at_every_offset(entity: str, before: str, value: str) -> None:
    text = f"{before}{value}, ok"
    expected = f"{before}[{entity.upper()}_1], ok"
    for cut in range(1, len(text)):
        assert texts(run(REDACT, [content(text[:cut]), content(text[cut:]), END])[0]) == expected
    out, stream = run(REDACT, [*map(content, text), END])
    assert texts(out) == expected
    assert stream.counts == {(entity, Action.REDACT): 1}


@pytest.mark.parametrize(("entity", "before", "value"), TRUE)
def test_in_a_tool_call_cut_at_every_offset_the_json_stays_whole(entity: str, before: str, value: str) -> None:
    source = json.dumps({"to": before + value + " ok", "n": 1})
    expected = {"to": f"{before}[{entity.upper()}_1] ok", "n": 1}
    for cut in range(1, len(source)):
        out, _ = run(REDACT, [arguments(source[:cut]), arguments(source[cut:]), END])
        assert json.loads(called(out)) == expected
    assert json.loads(called(run(REDACT, [*map(arguments, source), END])[0])) == expected


@pytest.mark.parametrize(("entity", "before", "value"), TRUE)
def test_blocked_cut_anywhere_nothing_of_the_value_is_sent(entity: str, before: str, value: str) -> None:
    text = f"{before}{value}, ok"
    for cut in range(1, len(text)):
        out, stream = run(BLOCK, [content(text[:cut]), content(text[cut:]), END])
        assert texts(out) == before
        assert stream.ended is not None
    assert texts(run(BLOCK, [*map(content, text), END])[0]) == before


def test_a_value_written_with_escapes_in_a_tool_call() -> None:
    source = '{"to":"jane\\u0040example.com","\\ud83d\\ude00":"\\uff14111 1111 1111 1111","note":"a\\nb"}'
    expected = {"to": "[EMAIL_1]", "\N{GRINNING FACE}": "[PAYMENT_CARD_1]", "note": "a\nb"}
    for cut in range(1, len(source)):
        assert json.loads(called(run(REDACT, [arguments(source[:cut]), arguments(source[cut:]), END])[0])) == expected


def test_a_number_in_a_tool_call_becomes_a_string() -> None:
    source = '{"card":4111111111111111,"ids":[-1,4111111111111111],"x":1.5e3}'
    for pieces in ([source], list(source)):
        out, _ = run(REDACT, [*map(arguments, pieces), END])
        assert json.loads(called(out)) == {"card": "[PAYMENT_CARD_1]", "ids": [-1, "[PAYMENT_CARD_1]"], "x": 1500.0}


def test_every_choice_is_filtered_on_its_own() -> None:
    pieces = [("mail a@b", 0), ("mail c@d", 1), (".io now", 0), (".io now", 1)]
    together = [content(text, index) for text, index in pieces]
    out, _ = run(REDACT, [*together, chat({}, 0, "stop"), chat({}, 1, "stop")])

    assert texts(out, index=0) == "mail [EMAIL_1] now"
    assert texts(out, index=1) == "mail [EMAIL_2] now"


def test_one_event_with_several_choices_and_fields_is_taken_apart() -> None:
    choices = [
        {"index": 0, "delta": {"role": "assistant", "reasoning_content": "of a@b.io ", "content": "to c@d.io "}},
        {"index": 1, "delta": {"content": "clean "}, "finish_reason": "stop"},
    ]
    out, _ = run(REDACT, [event({"id": "c", "choices": choices, "usage": {"total_tokens": 3}}), END])

    assert texts(out, "reasoning_content") == "of [EMAIL_1] "
    assert texts(out) == "to [EMAIL_2] "
    assert texts(out, index=1) == "clean "
    assert sum("usage" in each for each in decoded(out)) == 1


@pytest.mark.parametrize("field", ["content", "reasoning_content", "reasoning", "refusal", "some_new_text"])
def test_every_text_of_a_delta_is_filtered(field: str) -> None:
    out, _ = run(REDACT, [chat({field: piece}) for piece in ("a@", "b.io", " x")] + [END])

    assert texts(out, field) == "[EMAIL_1] x"


def test_a_new_kind_of_text_ends_the_one_before() -> None:
    stream = FilteredStream(REDACT)
    stream.feed(chat({"reasoning_content": "I thin"}))
    stream.feed(chat({"reasoning_content": "k"}))
    assert texts(stream.feed(content("Well")), "reasoning_content") == "I think"


def test_log_probabilities_of_a_redacted_span_go() -> None:
    logprobs = {"content": [{"token": "a@b.io", "logprob": -1}]}
    kept = {"content": [{"token": " x", "logprob": -1}]}
    events = [chat({"content": "a@b.io"}, logprobs=logprobs), chat({"content": " x"}, logprobs=kept), END]
    out, _ = run(REDACT, events)

    assert b"a@b" not in out
    assert [each["choices"][0]["logprobs"] for each in decoded(out)[:2]] == [None, kept]


def test_usage_and_finish_come_last_and_as_they_were() -> None:
    usage = event({"id": "c", "choices": [], "usage": {"completion_tokens": 3}})
    out, _ = run(REDACT, [content("a@b.io"), chat({}, finish="stop"), usage, b"data: [DONE]\n\n"])

    assert out.endswith(chat({}, finish="stop") + usage + b"data: [DONE]\n\n")
    assert texts(out) == "[EMAIL_1]"


def test_text_in_the_last_event_with_its_finish_reason() -> None:
    out, _ = run(REDACT, [content("to a@"), chat({"content": "b.io"}, finish="length")])

    assert texts(out) == "to [EMAIL_1]"
    assert decoded(out)[-1]["choices"][0]["finish_reason"] == "length"


def test_a_long_event_is_divided_where_it_is_decided() -> None:
    stream = FilteredStream(REDACT)
    assert (
        texts(stream.feed(content("A long piece of clean text, then jane@exam"))) == "A long piece of clean text, then "
    )
    assert texts(stream.feed(content("ple.com and more of it."))) == "[EMAIL_1] and more of "
    assert texts(stream.close()) == "it."


def test_completions() -> None:
    def completion(text: str, finish: str | None = None) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        return event({"id": "c", "object": "text_completion", "choices": [choice]})

    out, _ = run(REDACT, [*map(completion, "mail a@b.io x"), completion("", "stop")])
    assert "".join(each["choices"][0]["text"] for each in decoded(out)) == "mail [EMAIL_1] x"
    out, _ = run(BLOCK, [*map(completion, "mail a@b.io x"), completion("", "stop")])
    assert [each["choices"][0]["finish_reason"] for each in decoded(out)[:-1]][-1] == "content_filter"


def test_responses() -> None:
    def delta(text: str) -> bytes:
        fields = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0}
        return event({**fields, "delta": text}, "response.output_text.delta")

    full = "mail a@b.io x"
    part = {"type": "output_text", "text": full}
    response = {"object": "response", "id": "r", "output": [{"type": "message", "content": [part]}]}
    events = [
        event({"type": "response.created", "response": {"object": "response", "id": "r"}}, "response.created"),
        *map(delta, full),
        event({"type": "response.output_text.done", "output_index": 0, "text": full}, "response.output_text.done"),
        event({"type": "response.completed", "response": response}, "response.completed"),
    ]
    out, _ = run(REDACT, events)
    found = decoded(out)
    assert b"a@b" not in out
    deltas = [each["delta"] for each in found if each["type"].endswith(".delta")]
    assert "".join(deltas) == found[-2]["text"] == "mail [EMAIL_1] x"
    assert found[-1]["response"]["output"][0]["content"][0]["text"] == "mail [EMAIL_1] x"
    assert b"event: response.output_text.delta\ndata: " in out
    out, _ = run(BLOCK, events)
    assert [each["type"] for each in decoded(out)[-2:]] == ["response.incomplete", "error"]
    assert decoded(out)[-2]["response"]["incomplete_details"] == {"reason": "content_filter"}


def test_messages() -> None:
    def block(index: int, kind: str, key: str, text: str) -> bytes:
        delta = {"type": kind, key: text}
        return event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")

    def mark(kind: str, **fields: Any) -> bytes:
        return event({"type": kind, **fields}, kind)

    events = [
        mark("message_start", message={"id": "m", "role": "assistant", "content": []}),
        mark("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(block(0, "text_delta", "text", piece) for piece in "to a@b.io"),
        mark("content_block_stop", index=0),
        mark("content_block_start", index=1, content_block={"type": "tool_use", "id": "t", "name": "f", "input": {}}),
        *(block(1, "input_json_delta", "partial_json", piece) for piece in '{"to":"a@b.io"}'),
        mark("content_block_stop", index=1),
        mark("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5}),
        mark("message_stop"),
    ]
    out, _ = run(REDACT, events)
    found = [each for each in decoded(out) if each["type"] == "content_block_delta"]
    assert "".join(each["delta"].get("text", "") for each in found) == "to [EMAIL_1]"
    assert json.loads("".join(each["delta"].get("partial_json", "") for each in found)) == {"to": "[EMAIL_1]"}
    order = [each["type"] for each in decoded(out)]
    assert order.index("content_block_stop") > max(
        place for place, each in enumerate(decoded(out)) if each.get("index") == 0 and "delta" in each
    )
    out, _ = run(BLOCK, events)
    last = decoded(out)[-3:]
    assert [each["type"] for each in last] == ["content_block_stop", "message_delta", "error"]
    assert last[1]["delta"]["stop_reason"] == "refusal"


def test_frames_of_a_web_socket() -> None:
    stream = FilteredStream(REDACT, framed=False)
    fields = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0}
    frames = [json.dumps({**fields, "delta": piece}).encode() for piece in "mail a@b.io x"]
    sent = [out for frame in frames for out in stream.feed_frame(frame)] + stream.close_frames()

    assert "".join(json.loads(each)["delta"] for each in sent) == "mail [EMAIL_1] x"


def test_halves_of_a_surrogate_pair_in_two_events() -> None:
    halves = [content("x").replace(b'"x"', half) for half in (b'"hi \\ud83d"', b'"\\ude00 a@b.io"')]
    out, stream = run(REDACT, [*halves, END])

    assert stream.ended is None
    assert b"a@b" not in out


def test_a_stall_shows_an_open_address_as_found() -> None:
    stream = FilteredStream(REDACT)
    stream.feed(content("to jane@exam"))
    assert texts(stream.stalled()) == "to "
    assert texts(stream.feed(content("ple.com, ok."))) + texts(stream.close()) == "[EMAIL_1], ok."


def test_litellm_41611_a_value_over_two_chunks_is_neither_missed_nor_leaked() -> None:
    stream = FilteredStream(REDACT)
    first = stream.feed(content("Call 415-555"))
    assert b"415" not in first
    assert texts(first + stream.feed(content("-2671 now.")) + stream.close()) == "Call [PHONE_1] now."


def test_litellm_31503_aisix_694_the_stream_is_not_buffered() -> None:
    stream = FilteredStream(REDACT)
    events = [content(f" word{'s' * (number % 3)}") for number in range(200)]
    behind = 0
    for number, each in enumerate(events, start=1):
        behind += stream.feed(each).count(b"data:")
        assert number - behind <= 1


@pytest.mark.parametrize("fail_open", [False, True])
def test_litellm_30728_a_failing_detector_fails_closed_unless_declared(
    fail_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("down")

    spec = FilterSpec(name="x", output={"email": Action.REDACT}, fail_open=fail_open)
    compiled = compile_filters([spec], direction="output")
    monkeypatch.setattr(matcher.Matcher, "triggered", broken)
    out, stream = run(compiled, [content("Hi a@b.io"), content(" x"), END])

    assert (b"a@b.io" in out) is fail_open
    assert (stream.ended is None) is fail_open
    if stream.ended is not None:
        assert stream.ended.code == "filter_failed"
        assert decoded(out)[-1]["error"]["code"] == "filter_failed"
    body = filter_request(b'{"input":"a@b.io"}', compiled, compiled.turn())
    assert isinstance(body, bytes) is fail_open


def test_litellm_20027_every_chunk_is_sent_once() -> None:
    pieces = [f"{number}, " for number in range(100)]

    assert texts(run(REDACT, [*map(content, pieces), END])[0]) == "".join(pieces)


def test_litellm_28316_what_was_redacted_is_not_redacted_again() -> None:
    once = texts(run(REDACT, [content("to a@b.io ok"), END])[0])

    assert texts(run(REDACT, [content(once), END])[0]) == once


def test_litellm_38734_aisix_204_aisix_466_a_stream_is_checked_before_it_is_sent() -> None:
    out, stream = run(BLOCK, [content("fine so far, but a@b.io"), content(" and"), END])

    assert texts(out) == "fine so far, but "
    assert stream.ended == Refusal(code="content_filter", message="Stopped by the content filter: email.")
    finish, error = decoded(out)[-2:]
    assert finish["choices"][0]["finish_reason"] == "content_filter"
    assert finish["id"] == "c"
    assert error["error"]["code"] == "content_filter"
    assert b"[DONE]" not in out


def test_aisix_760_monitoring_delays_and_rejects_nothing() -> None:
    stream = FilteredStream(MONITOR)
    for piece in ("to ", "a@", "b.io", " and", " more" * 10_000):
        assert stream.feed(content(piece)) == content(piece)
    assert stream.close() == b""
    assert stream.counts == {("email", Action.MONITOR): 1}


@pytest.mark.parametrize("compiled", [REDACT, MONITOR, BLOCK])
@pytest.mark.parametrize("ends", [True, False])
def test_nothing_of_a_stream_waits_for_garbage_collection(compiled: CompiledFilter, ends: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(each, Channel | FilteredStream) for each in gc.get_objects())
        stream = FilteredStream(compiled)
        for piece in ("to jane", "@exam", "ple.com", " and the", "n some"):
            stream.feed(content(piece))
        stream.feed(arguments('{"to":"a@b.'))
        if ends:
            stream.close()
        stream.discard()
        del stream
        assert sum(isinstance(each, Channel | FilteredStream) for each in gc.get_objects()) == before
    finally:
        gc.enable()


def test_requests_and_answers_that_are_not_streamed() -> None:
    turn = REDACT.turn()
    call = {"id": "a@b.io", "function": {"name": "f", "arguments": '{"to":"a@b.io"}'}}
    body = {
        "model": "m@x.io",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "I am a@b.io"}]},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "user", "content": [{"type": "tool_use", "id": "t", "input": {"card": 4111111111111111}}]},
        ],
    }
    found = filter_request(json.dumps(body).encode(), REDACT, turn)
    assert isinstance(found, bytes)
    messages = json.loads(found)["messages"]
    assert json.loads(found)["model"] == "m@x.io"
    assert messages[0]["content"][0]["text"] == "I am [EMAIL_1]"
    assert json.loads(messages[1]["tool_calls"][0]["function"]["arguments"]) == {"to": "[EMAIL_1]"}
    assert messages[2]["content"][0]["input"] == {"card": "[PAYMENT_CARD_1]"}
    clean = b'{ "input" : "nothing here" }'
    assert filter_request(clean, REDACT, turn) is clean
    blocked = filter_request(json.dumps(body).encode(), BLOCK, BLOCK.turn())
    assert isinstance(blocked, Refusal)
    assert "a@b" not in blocked.message
    # The answer of the same turn gives the same value the same name.
    stream = FilteredStream(REDACT, turn)
    assert texts(stream.feed(content("you are a@b.io, x ")) + stream.close()) == "you are [EMAIL_1], x "
