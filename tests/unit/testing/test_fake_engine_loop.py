"""The engine's loop and its metrics: time given to steps, and what is told of it."""

import asyncio
import sys
from array import array
from itertools import pairwise

import pytest

from pilothouse.testing.fake_engine.engine_loop import InstantEngine, LatencyModel, TimedEngine
from pilothouse.testing.fake_engine.kv_events import KvEventPublisher, KvEventsUnavailableError
from pilothouse.testing.fake_engine.metrics import EngineMetrics, Histogram
from pilothouse.testing.fake_engine.scheduler import Scheduler, SchedulerLimits, Sequence, Step
from pilothouse.testing.processes import wait_until

QUICK = LatencyModel(base_s=0.0005, per_sequence_s=0.0, prefill_rate=1e9)


class Listener:
    """Remembers what it was told, and does something the first time."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.ended = asyncio.Event()
        self.fails = False

    def tokens_ready(self, sequence: Sequence) -> None:
        self.seen.append(sequence.generated)
        if sequence.finished:
            self.ended.set()
        if self.fails:
            raise RuntimeError("on purpose")


def sequence(listener: Listener, *, output: int = 3, hold_at: int | None = None, first: int = 0) -> Sequence:
    prompt = array("I", range(first, first + 8))
    return Sequence(prompt, array("I", range(output)), listener=listener, hold_at=hold_at)


def engine(metrics: EngineMetrics | None = None) -> TimedEngine:
    return TimedEngine(Scheduler(SchedulerLimits(blocks=64)), QUICK, metrics or EngineMetrics("m"))


def test_the_time_of_a_step_is_linear_in_what_it_computes() -> None:
    model = LatencyModel(base_s=0.010, per_sequence_s=0.001, prefill_rate=1000, scale=2.0)
    assert model.duration_s(Step(scheduled=(), prefill_tokens=0, decodes=0)) == pytest.approx(0.020)
    assert model.duration_s(Step(scheduled=(), prefill_tokens=50, decodes=4)) == pytest.approx(2 * (0.014 + 0.050))


@pytest.mark.asyncio
async def test_sequences_advance_together_until_all_have_ended() -> None:
    metrics = EngineMetrics("m")
    running = engine(metrics)
    listeners = [Listener() for _ in range(3)]
    for index, listener in enumerate(listeners):
        running.submit(sequence(listener, output=4, first=100 * index))
    await asyncio.gather(*(listener.ended.wait() for listener in listeners))
    assert [listener.seen for listener in listeners] == [[1, 2, 3, 4]] * 3
    assert sum(metrics.time_to_first_token.counts) == sum(metrics.e2e_latency.counts) == 3
    assert sum(metrics.inter_token_latency.counts) == 9
    running.close()


@pytest.mark.asyncio
async def test_an_aborted_sequence_is_not_heard_of_again_and_its_blocks_serve_the_next() -> None:
    running = TimedEngine(Scheduler(SchedulerLimits(blocks=1)), QUICK, EngineMetrics("m"))
    held, waiting = Listener(), Listener()
    first = sequence(held, hold_at=1)
    running.submit(first)
    running.submit(sequence(waiting))
    await wait_until(lambda: held.seen == [1], "the first token")
    assert len(running.scheduler.waiting) == 1
    assert running.abort(first)
    assert not running.abort(first)
    await waiting.ended.wait()
    assert held.seen == [1]
    running.close()


@pytest.mark.asyncio
async def test_a_released_sequence_goes_on() -> None:
    running = engine()
    listener = Listener()
    held = sequence(listener, hold_at=0)
    running.submit(held)
    await asyncio.sleep(0.005)
    assert listener.seen == []
    running.release(held, 2)
    await wait_until(lambda: listener.seen == [1, 2], "two tokens")
    running.release(held)
    await listener.ended.wait()
    assert listener.seen == [1, 2, 3]
    running.close()


@pytest.mark.asyncio
async def test_a_listener_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    running = engine()
    bad, good = Listener(), Listener()
    bad.fails = True
    running.submit(sequence(bad))
    running.submit(sequence(good, first=100))
    await good.ended.wait()
    await bad.ended.wait()
    assert "on purpose" in caplog.text
    running.close()


@pytest.mark.asyncio
async def test_nothing_is_computed_after_the_end() -> None:
    running = engine()
    listener = Listener()
    running.submit(sequence(listener))
    running.close()
    running.submit(sequence(listener, first=100))
    await asyncio.sleep(0.005)
    assert listener.seen == []


@pytest.mark.asyncio
async def test_the_instant_engine_answers_within_the_call() -> None:
    metrics = EngineMetrics("m")
    instant = InstantEngine(Scheduler(SchedulerLimits(blocks=1)), metrics)
    listener, held = Listener(), Listener()
    instant.submit(sequence(listener, output=500))  # more than its blocks would hold
    assert listener.seen == [500]

    stalled = sequence(held, hold_at=2)
    instant.submit(stalled)
    assert held.seen == [2]
    assert instant.scheduler.running == [stalled]
    instant.release(stalled)
    assert held.seen == [2, 3]
    assert (instant.scheduler.prompt_tokens, instant.scheduler.generation_tokens) == (16, 503)
    assert instant.scheduler.finished == {"length": 2}
    assert sum(metrics.e2e_latency.counts) == 2


def test_a_histogram_counts_by_upper_bounds() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    assert list(histogram.lines("name", 'a="b"')) == [
        'name_bucket{a="b",le="0.1"} 2',
        'name_bucket{a="b",le="1.0"} 3',
        'name_bucket{a="b",le="+Inf"} 4',
        'name_count{a="b"} 4',
        'name_sum{a="b"} 7.65',
    ]


def test_the_exposition_is_well_formed_and_has_vllms_names() -> None:
    scheduler = Scheduler(SchedulerLimits(blocks=4))
    scheduler.finished["abort"] = 2
    lines = EngineMetrics('a "model"\n').text(scheduler).splitlines()
    samples = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
    labels = 'engine="0",model_name="a \\"model\\"\\n"'
    assert samples[f'vllm:request_success_total{{{labels},finished_reason="abort"}}'] == 2
    types = [line.split()[2:] for line in lines if line.startswith("# TYPE")]
    assert [name for name, kind in types if kind == "gauge"] == [
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
    ]
    assert len({name for name, _ in types}) == len(types)
    for metric in ("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"):
        bounds = [
            float(line.partition('le="')[2].partition('"')[0])
            for line in lines
            if line.startswith(f"vllm:{metric}_bucket")
        ]
        assert all(left < right for left, right in pairwise(bounds))
        assert bounds[-1] == float("inf")


@pytest.mark.asyncio
async def test_without_pyzmq_kv_events_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(KvEventsUnavailableError, match=r"pip install 'pilothouse\[kv-events\]'"):
        KvEventPublisher("tcp://*:0")
