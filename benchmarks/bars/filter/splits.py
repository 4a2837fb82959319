"""Every positive value of the tests, cut at every position: the same is sent, and nothing of the value."""

import itertools
import json
import re
from collections.abc import Iterator, Sequence

from benchmarks.bars.report import Bar, main, tell
from benchmarks.filter_corpus.full_set import full_set
from benchmarks.filter_corpus.test_values import TRUE
from pilothouse.model.filters import Action
from pilothouse.policy.redaction.compiled import CompiledFilter, compile_filters
from pilothouse.wire import sse
from pilothouse.wire.filtered_stream import FilteredStream

ACTIONS = (Action.REDACT, Action.MASK, Action.HASH, Action.BLOCK)
FORMS = ("prose", "tool call", "JSON in content")
_PLACEHOLDER = re.compile(r"\[[A-Z_]+[_:][0-9a-f]+\]")
LEAK_CHARS = 5
"""So many letters and digits of a value in a row are a leak. `mask` leaves four."""


def _chat(delta: dict[str, object]) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return sse.event(json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice]}).encode())


def _event(form: str, piece: str) -> bytes:
    if form == "tool call":
        return _chat({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    return _chat({"content": piece})


def _said(form: str, out: bytes) -> str:
    said = ""
    for each in sse.split(out):
        data = sse.data_of(each)
        for choice in json.loads(data).get("choices", ()) if data.startswith(b"{") else ():
            delta = choice["delta"]
            if form == "tool call":
                said += "".join(call["function"].get("arguments", "") for call in delta.get("tool_calls", ()))
            else:
                said += delta.get("content") or ""
    return said


def send(compiled: CompiledFilter, form: str, pieces: Sequence[str]) -> str:
    """What a client reads of a text that comes in these pieces."""
    stream = FilteredStream(compiled)
    out = b"".join([*(stream.feed(_event(form, piece)) for piece in pieces), stream.close()])
    return _said(form, out)


def cuts(text: str, first: int, last: int) -> Iterator[list[str]]:
    """In two at every position; in three at every pair of positions from `first` to `last`; in single characters."""
    for at in range(1, len(text)):
        yield [text[:at], text[at:]]
    for one, two in itertools.combinations(range(max(1, first), min(len(text), last + 1)), 2):
        yield [text[:one], text[one:two], text[two:]]
    yield list(text)


def measure() -> list[Bar]:
    """How many streams sent something else than the whole text would, and how many leaked."""
    streams = different = leaked = 0
    wrong: list[str] = []
    for action in ACTIONS:
        compiled = compile_filters([full_set(action)], direction="output")
        tell(action.value)
        for entity, before, value in TRUE:
            for form in FORMS:
                text = f"{before}{value}, ok" if form == "prose" else json.dumps({"to": f"{before}{value} ok"})
                shown = value if form == "prose" else json.dumps(value)[1:-1]
                start = text.index(shown)
                whole = send(compiled, form, [text])
                # Three pieces at every pair of places is quadratic: for the two actions that differ most.
                wide = action in (Action.REDACT, Action.BLOCK) and len(shown) <= 45
                last = start + len(shown) if wide else 0
                for pieces in cuts(text, start, last):
                    sent = send(compiled, form, pieces)
                    streams += 1
                    if sent != whole:
                        different += 1
                        wrong.append(f"{action.value} {entity} {form}")
                    if _leaks(sent, shown, before):
                        leaked += 1
                        wrong.append(f"leak: {action.value} {entity} {form}")
    details: dict[str, object] = {"streams": streams, "values": len(TRUE), "wrong": sorted(set(wrong))[:20]}
    return [
        Bar(
            name="Cut at every offset: another output than of the whole text",
            limit="0 streams",
            measured=f"{different} of {streams}",
            passed=different == 0,
            details=details,
        ),
        Bar(
            name="Cut at every offset: part of the value on the wire",
            limit="0 streams",
            measured=f"{leaked} of {streams}",
            passed=leaked == 0,
            details=details,
        ),
    ]


def _leaks(sent: str, value: str, before: str) -> bool:
    rest = _PLACEHOLDER.sub("", sent.removeprefix(before))
    windows = []
    for at in range(len(value)):
        end, letters = at, 0
        while end < len(value) and letters < LEAK_CHARS:
            letters += value[end].isalnum()
            end += 1
        if letters == LEAK_CHARS:
            windows.append(value[at:end])
    return any(window in rest for window in windows or [value])


if __name__ == "__main__":
    main("filter", measure())
