"""24 policies and 500 streams of 50 events a second in one process, for ten minutes: flat memory, nothing left behind.

It is a worker's filter work without its sockets: bytes of events go through the relay and the filter. Streams end after
twenty seconds, some of them broken off, and others begin. `PILOTHOUSE_FILTER_MINUTES` makes it shorter.
"""

import gc
import itertools
import json
import os
import random
import resource
import time
import weakref
from pathlib import Path

from benchmarks.bars.report import Bar, main, tell
from benchmarks.filter_corpus.clean import SEED, prose
from benchmarks.filter_corpus.full_set import full_set
from benchmarks.filter_corpus.test_values import TRUE
from pilothouse.gateway.filtered_exchange import FilteredRelay
from pilothouse.model.filters import Action, FilterSpec, PatternSpec, PhrasesSpec
from pilothouse.model.requests import Route
from pilothouse.policy.redaction.compiled import Channel, CompiledFilter, compile_filters
from pilothouse.wire import sse
from pilothouse.wire.filtered_stream import FilteredStream

POLICIES, STREAMS, EVENTS_PER_S = 24, 500, 50
EVENTS_OF_A_STREAM = 20 * EVENTS_PER_S
MINUTES = float(os.environ.get("PILOTHOUSE_FILTER_MINUTES", "10"))
WARM_UP_SHARE = 0.25
GROWTH_LIMIT_MB = 4.0
_PAGE = resource.getpagesize()
_SLICE_S = 1 / EVENTS_PER_S


class FilterStreamWatched(FilteredStream):
    """One that can be seen to go."""

    __slots__ = ("__weakref__",)


def policies() -> list[CompiledFilter]:
    """24 sets, each with an expression and phrases of its own."""
    actions = (Action.REDACT, Action.MASK, Action.HASH, Action.MONITOR)
    found = []
    for number in range(POLICIES):
        action = actions[number % len(actions)]
        own = FilterSpec(
            name=f"own-{number}",
            output={"ticket": action, "codename": action},
            patterns=(PatternSpec(name="ticket", pattern=rf"TKT{number}-[0-9]{{6}}", max_chars=16),),
            phrases=(PhrasesSpec(name="codename", phrases=(f"project falcon {number}", "blue heron")),),
            hash_key="key",
        )
        # Every third one has only the built-in detectors, as most fleets will.
        specs = [full_set(action)] if number % 3 == 0 else [full_set(action), own]
        found.append(compile_filters(specs, direction="output"))
    return found


def recorded(draw: random.Random, text: str) -> list[bytes]:
    """The events of one stream: prose with a value here and there."""
    start = draw.randrange(len(text) - 6000)
    words = text[start : start + 5000].split(" ")
    for _ in range(3):
        _, before, value = draw.choice(TRUE)
        words.insert(draw.randrange(len(words)), before + value)
    said = " ".join(words)
    events = []
    for at in range(0, len(said), 4):
        choice = {"index": 0, "delta": {"content": said[at : at + 4]}, "logprobs": None, "finish_reason": None}
        events.append(
            sse.event(json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice]}).encode())
        )
    return events[:EVENTS_OF_A_STREAM]


def resident_mb() -> float:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1e6


class Load:
    """The streams."""

    def __init__(self) -> None:
        draw = random.Random(SEED)
        text = prose()
        self._draw = draw
        self._compiled = itertools.cycle(policies())
        self._recordings = [recorded(draw, text) for _ in range(40)]
        self.live: weakref.WeakSet[FilterStreamWatched] = weakref.WeakSet()
        self.events = self.ended = 0
        self._running = [self._begin(draw.randrange(EVENTS_OF_A_STREAM)) for _ in range(STREAMS)]

    def _begin(self, at: int = 0) -> tuple[FilterStreamWatched, FilteredRelay, list[bytes], list[int]]:
        stream = FilterStreamWatched(next(self._compiled))
        self.live.add(stream)
        relay = FilteredRelay(Route.CHAT_COMPLETIONS, stream, hides_usage=False, hides_progress=False)
        return stream, relay, self._draw.choice(self._recordings), [at]

    def step(self) -> None:
        """One event of each stream."""
        for index, (stream, relay, events, place) in enumerate(self._running):
            at = place[0]
            if at < len(events):
                relay.feed(events[at])
                place[0] = at + 1
                self.events += 1
                continue
            if index % 4:
                relay.close()
            stream.discard()
            self.ended += 1
            self._running[index] = self._begin()

    def stop(self) -> None:
        """End them all."""
        for stream, relay, _, _ in self._running:
            relay.close()
            stream.discard()
        self._running.clear()


def measure() -> list[Bar]:
    """Memory from the end of the warm-up on, and what is alive at the end without the collector's help."""
    load = Load()
    gc.collect()
    gc.disable()
    began, used = time.monotonic(), time.process_time()
    ends = began + MINUTES * 60
    warm_at = began + MINUTES * 60 * WARM_UP_SHARE
    warm: float | None = None
    peak = late = 0.0
    due = began
    try:
        while due < ends:
            load.step()
            due += _SLICE_S
            left = due - time.monotonic()
            if left > 0:
                time.sleep(left)
            else:
                late = max(late, -left)
            if due > warm_at:
                now = resident_mb()
                if warm is None:
                    warm = now
                    tell(f"warm: {warm:.1f} MB")
                peak = max(peak, now)
        cpu = (time.process_time() - used) / load.events * 1e6
        load.stop()
        alive = len(load.live) + sum(isinstance(each, Channel) for each in gc.get_objects())
    finally:
        gc.enable()
    assert warm is not None
    rate = load.events / (time.monotonic() - began)
    details: dict[str, object] = {
        "minutes": MINUTES, "events": load.events, "streams_ended": load.ended, "events_per_s": round(rate),
        "cpu_us_per_event_of_all": round(cpu, 2), "warm_mb": round(warm, 1), "peak_mb": round(peak, 1),
        "latest_step_s": round(late, 3),
    }  # fmt: skip
    return [
        Bar(name="500 streams, 24 policies: memory after the warm-up", limit=f"grows < {GROWTH_LIMIT_MB:g} MB",
            measured=f"{peak - warm:+.1f} MB in {MINUTES * (1 - WARM_UP_SHARE):g} min", details=details,
            passed=peak - warm < GROWTH_LIMIT_MB and rate > 0.97 * STREAMS * EVENTS_PER_S),
        Bar(name="500 streams, 24 policies: streams left behind, collector off", limit="0", measured=str(alive),
            passed=alive == 0, details=details),
    ]  # fmt: skip


if __name__ == "__main__":
    main("filter", measure())
