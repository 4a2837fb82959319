"""However a text arrives, the same is sent: over server-sent events, over WebSocket, and by either engine."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from filter_cases import TRUE, everything
from pilothouse.model.filters import Action, FilterSpec, PatternSpec, PhrasesSpec
from pilothouse.policy.redaction.compiled import CompiledFilter, compile_filters
from pilothouse.wire import sse
from pilothouse.wire.filtered_stream import FilteredStream

SPEC = everything(Action.REDACT)
OWN = FilterSpec(
    name="own",
    output={"order": Action.MASK, "codename": Action.HASH, "url": Action.REDACT},
    patterns=(
        PatternSpec(name="order", pattern=r"\bORD-(\d{3}|[a-z]+x)(-\d+)?", max_chars=24),
        PatternSpec(name="url", pattern=r"https?://[a-z.]+(/[a-z]*)*", ignore_case=True, max_chars=40),
    ),
    phrases=(PhrasesSpec(name="codename", phrases=("blue falcon", "blue falcon two", "a b c")),),
    hash_key="key",
)
ALL = {engine: compile_filters([SPEC, OWN], direction="output", engine=engine) for engine in ("hyperscan", "re2")}
BLOCKING = compile_filters([everything(Action.BLOCK)], direction="output")

_WORDS = st.sampled_from(
    [
        *("the", "word", "I", "US", "May", "12", "2024", "1,234", "a@", "@b", "x.y", "DE89", "born", "March", "+", "("),
        *(
            "ORD-",
            "ORD-123",
            "ORD-abx-1",
            "blue",
            "falcon",
            "two",
            "a",
            "b",
            "c",
            "http://",
            "HTTP://a.b/c",
            "eyJ",
            "sk-",
        ),
        *(
            "sk-",
            "4111",
            "1111",
            "555-",
            "-----BEGIN ",
            "secret",
            "\u200b",
            "\uff14",
            "é",
            "日本",
            "😀",
            "\n",
            '"',
            "\\",
            "{",
        ),
        "a" * 70,
        "1 " * 30,
    ]
)
_VALUES = st.sampled_from(TRUE).map(lambda case: case[1] + case[2])
_GLUE = st.sampled_from([" ", "", ", ", ".", "-", "/", ":", "=", "\n", ") "])
TEXTS = st.lists(st.tuples(st.one_of(_WORDS, _VALUES), _GLUE), max_size=10).map(
    lambda parts: "".join(part + glue for part, glue in parts)
)


def _cut(text: str, sizes: list[int]) -> list[str]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    return [piece for piece in (*pieces, text[at:]) if piece]


def _chat(piece: str) -> bytes:
    choice = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
    return sse.event(json.dumps({"id": "c", "choices": [choice]}).encode())


def _frame(piece: str) -> bytes:
    return json.dumps({"type": "response.output_text.delta", "output_index": 0, "delta": piece}).encode()


def over_events(compiled: CompiledFilter, pieces: list[str]) -> str:
    stream = FilteredStream(compiled)
    out = b"".join([*(stream.feed(_chat(piece)) for piece in pieces), stream.close()])
    datas = [json.loads(sse.data_of(each)) for each in sse.split(out)]
    return "".join(each["choices"][0]["delta"].get("content", "") for each in datas if "choices" in each)


def over_frames(compiled: CompiledFilter, pieces: list[str]) -> str:
    stream = FilteredStream(compiled, framed=False)
    frames = [out for piece in pieces for out in stream.feed_frame(_frame(piece))] + stream.close_frames()
    return "".join(json.loads(frame)["delta"] for frame in frames)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 9), max_size=40))
def test_any_chunking_sends_what_the_whole_text_would(text: str, sizes: list[int]) -> None:
    pieces = _cut(text, sizes)
    compiled = ALL["hyperscan"]
    whole, _ = compiled.whole(text, compiled.turn())

    assert over_events(compiled, pieces) == whole
    assert over_frames(compiled, pieces) == whole
    assert over_events(compiled, list(text)) == whole


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 9), max_size=40))
def test_both_engines_send_the_same(text: str, sizes: list[int]) -> None:
    pieces = _cut(text, sizes)

    assert over_events(ALL["re2"], pieces) == over_events(ALL["hyperscan"], pieces)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 9), max_size=40))
def test_what_is_blocked_sends_the_same_beginning(text: str, sizes: list[int]) -> None:
    pieces = _cut(text, sizes)

    assert over_events(BLOCKING, pieces) == over_events(BLOCKING, [text] if text else [])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TEXTS, st.integers(-(10**17), 10**17)), max_size=3), st.lists(st.integers(1, 9), max_size=60))
def test_arguments_of_a_tool_call_stay_json(entries: list[tuple[str, int]], sizes: list[int]) -> None:
    value = {f"k{number}": [text, digits] for number, (text, digits) in enumerate(entries)}
    source = json.dumps(value)
    compiled = ALL["hyperscan"]
    whole, _ = compiled.whole(source, compiled.turn(), json_source=True)
    channel = compiled.channel(compiled.turn(), json_source=True)
    for piece in _cut(source, sizes):
        channel.feed(piece)
    channel.close()
    sent, at = "", 0
    for start, end, replacement in channel.edits:
        sent += source[at:start] + replacement
        at = end
    sent += source[at:]

    assert sent == whole
    assert json.loads(sent).keys() == value.keys()
