import json
from itertools import islice

from rich.console import Console

from pilothouse.cli.bench_client import Outcome
from pilothouse.cli.bench_load import Load, bodies
from pilothouse.cli.bench_report import BenchReport, distribution, report, summary, table


def outcome(started: float, *tokens_at: float, ended: float, error: str | None = None) -> Outcome:
    return Outcome(
        started=started,
        ended=ended,
        tokens_at=tokens_at,
        input_tokens=10,
        output_tokens=len(tokens_at),
        error=error,
    )


def report_of(*outcomes: Outcome) -> BenchReport:
    return report(outcomes, model="m", url="http://h", concurrency=2, stream=True, cpu_s=0.5)


def load(**fields: object) -> Load:
    defaults = {
        "model": "m",
        "requests": 1,
        "duration_s": None,
        "concurrency": 1,
        "prompt_tokens": 130,
        "max_tokens": 7,
        "stream": True,
        "seed": 3,
    }
    return Load(**{**defaults, **fields})  # type: ignore[arg-type]


def test_percentiles_are_values_that_were_measured() -> None:
    found = distribution([number / 1000 for number in range(100, 0, -1)])
    assert found is not None
    assert (found.p50, found.p90, found.p99, found.max, found.mean, found.count) == (50, 90, 99, 100, 50.5, 100)
    one = distribution([0.002])
    assert one is not None
    assert (one.p50, one.p99, one.max) == (2, 2, 2)
    assert distribution([]) is None


def test_latencies_and_rates() -> None:
    found = report_of(outcome(0.0, 0.1, 0.3, ended=0.4), outcome(1.0, 1.3, 1.4, 1.6, ended=2.0))
    assert found.time_to_first_token is not None
    assert found.inter_token_latency is not None
    assert found.end_to_end is not None
    assert (found.time_to_first_token.p50, found.time_to_first_token.max) == (100, 300)
    assert (found.inter_token_latency.count, found.inter_token_latency.max) == (3, 200)
    assert found.end_to_end.max == 1000
    assert (found.duration_s, found.requests_per_s, found.output_tokens_per_s) == (2.0, 1.0, 2.5)
    assert found.client_cpu_ratio == 0.25


def test_failed_requests_count_for_nothing_but_errors() -> None:
    failed = outcome(0.0, 0.9, ended=1.0, error="replica_lost")
    found = report_of(outcome(0.0, 0.1, ended=0.2), failed, failed, outcome(0.0, ended=0.5, error="timeout"))
    assert (found.requests, found.failed, found.errors) == (4, 3, {"replica_lost": 2, "timeout": 1})
    assert found.end_to_end is not None
    assert found.end_to_end.count == 1
    assert "failed      3 (replica_lost 2, timeout 1)" in summary(found)


def test_a_run_of_failures_has_no_latencies_and_still_a_report() -> None:
    found = report_of(outcome(0.0, ended=0.0, error="connect_failed"))
    assert found.end_to_end is None
    assert found.requests_per_s == 0
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table(found))
    assert "end to end" not in capture.get()


def test_the_same_seed_asks_the_same_and_no_two_prompts_begin_alike() -> None:
    first = list(islice(bodies(load()), 50))
    assert first == list(islice(bodies(load()), 50))
    assert first != list(islice(bodies(load(seed=4)), 50))
    prompts = [json.loads(body)["messages"][0]["content"] for body in first]
    assert len({prompt[:8] for prompt in prompts}) == 50
    assert all(len(prompt.split()) == 101 for prompt in prompts)


def test_only_streams_ask_for_events() -> None:
    streamed = json.loads(next(bodies(load())))
    assert streamed["stream"] is True
    assert streamed["stream_options"] == {"include_usage": True}
    assert streamed["max_tokens"] == 7
    assert "stream" not in json.loads(next(bodies(load(stream=False))))
