"""CPU of filtering: per event above the unfiltered relay, and on whole texts."""

import statistics
import time
from collections.abc import Callable

from benchmarks.bars.report import Bar, main
from benchmarks.filter_corpus.clean import prose
from benchmarks.filter_corpus.full_set import full_set
from pilothouse.gateway.filtered_exchange import FilteredRelay
from pilothouse.model.filters import Action
from pilothouse.model.requests import Route
from pilothouse.policy.redaction.compiled import CompiledFilter, compile_filters
from pilothouse.wire.event_relay import EventRelay
from pilothouse.wire.filtered_stream import FilteredStream

EVENT_LIMIT_US = 3.0
TEXT_LIMIT_MB_S = 50.0
EVENTS = 20_000
ROUNDS = 7

_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"%b"},"logprobs":null,"finish_reason":null}]}\n\n'
)


def chat_events(text: str) -> list[bytes]:
    """A stream of deltas of four characters."""
    escaped = text.replace("\\", "/").replace('"', "'").replace("\n", " ").replace("\t", " ")
    return [_EVENT % escaped[at : at + 4].encode() for at in range(0, len(escaped), 4)][:EVENTS]


def seconds(run: Callable[[], object]) -> float:
    """The CPU time of one run: the least of several, since everything else on the machine only adds to it."""
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        run()
        took.append(time.process_time() - began)
    return min(took)


def per_event_us(events: list[bytes], compiled: CompiledFilter) -> tuple[float, float]:
    """Microseconds for each event of (a relay, the filter above it)."""

    def relay() -> None:
        pump = EventRelay(Route.CHAT_COMPLETIONS)
        for each in events:
            pump.feed(each)

    def filtered() -> None:
        stream = FilteredStream(compiled)
        pump = FilteredRelay(Route.CHAT_COMPLETIONS, stream, hides_usage=False, hides_progress=False)
        for each in events:
            pump.feed(each)

    alone = seconds(relay) / len(events) * 1e6
    return alone, seconds(filtered) / len(events) * 1e6 - alone


def measure() -> list[Bar]:
    """Both."""
    text = prose()
    events = chat_events(text)
    compiled = compile_filters([full_set(Action.REDACT)], direction="output")
    alone, above = per_event_us(events, compiled)
    monitored = compile_filters([full_set(Action.MONITOR)], direction="output")
    _, monitoring = per_event_us(events, monitored)
    speeds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        compiled.whole(text, compiled.turn())
        speeds.append(len(text.encode()) / (time.process_time() - began) / 1e6)
    details: dict[str, object] = {"relay_us": round(alone, 3), "events": len(events)}
    return [
        Bar(
            name="CPU per SSE event above the relay, all built-in detectors",
            limit=f"<= {EVENT_LIMIT_US:g} us",
            measured=f"{above:.2f} us",
            passed=above <= EVENT_LIMIT_US,
            details=details,
        ),
        Bar(
            name="CPU per SSE event above the relay, monitoring",
            limit=f"<= {EVENT_LIMIT_US:g} us",
            measured=f"{monitoring:.2f} us",
            passed=monitoring <= EVENT_LIMIT_US,
            details=details,
        ),
        Bar(
            name="Whole texts",
            limit=f">= {TEXT_LIMIT_MB_S:g} MB/s",
            measured=f"{max(speeds):.0f} MB/s (median {statistics.median(speeds):.0f})",
            passed=max(speeds) >= TEXT_LIMIT_MB_S,
            details={"bytes": len(text.encode())},
        ),
    ]


if __name__ == "__main__":
    main("filter", measure())
