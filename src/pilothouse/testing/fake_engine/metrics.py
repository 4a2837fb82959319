"""What the engine tells Prometheus, under vLLM's names (vllm/v1/metrics/loggers.py, 0.33)."""

from bisect import bisect_left
from collections.abc import Iterator

from pilothouse.testing.fake_engine.scheduler import Scheduler, Sequence

_TTFT_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
_ITL_BOUNDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_E2E_BOUNDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip

FINISHED_REASONS = ("stop", "length", "abort", "error")


class Histogram:
    """Counts by upper bound, and the sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One measurement."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The samples in the text format."""
        total = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_count{{{labels}}} {total}"
        yield f"{name}_sum{{{labels}}} {self.sum}"


class EngineMetrics:
    """Latencies by histogram; the counters and gauges are read from the scheduler when asked for."""

    def __init__(self, model_name: str) -> None:
        escaped = model_name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        self._labels = f'engine="0",model_name="{escaped}"'
        self.time_to_first_token = Histogram(_TTFT_BOUNDS)
        self.inter_token_latency = Histogram(_ITL_BOUNDS)
        self.e2e_latency = Histogram(_E2E_BOUNDS)

    def token(self, sequence: Sequence, now: float) -> None:
        """A sequence got a token, or ended without one, at `now` (seconds, monotonic)."""
        if sequence.generated <= 1:
            self.time_to_first_token.observe(now - sequence.arrived_at)
        else:
            self.inter_token_latency.observe(now - sequence.last_token_at)
        sequence.last_token_at = now
        if sequence.finished:
            self.sequence_ended(now - sequence.arrived_at)

    def sequence_ended(self, duration_s: float) -> None:
        """A sequence ended, in whatever way, so long after it came."""
        self.e2e_latency.observe(duration_s)

    def answered_at_once(self, duration_s: float) -> None:
        """A sequence got all its tokens together."""
        self.time_to_first_token.observe(duration_s)
        self.e2e_latency.observe(duration_s)

    def text(self, scheduler: Scheduler) -> str:
        """Everything in Prometheus' text format."""
        labels = self._labels
        lines: list[str] = []
        pool = scheduler.pool
        for name, help_text, value in (
            ("num_requests_running", "Number of requests in model execution batches.", len(scheduler.running)),
            ("num_requests_waiting", "Number of requests waiting to be processed.", len(scheduler.waiting)),
            ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", pool.used / pool.total),
        ):
            lines += _head(name, help_text, "gauge")
            lines.append(f"vllm:{name}{{{labels}}} {float(value)}")
        for name, help_text, count in (
            ("prefix_cache_queries", "Prefix cache queries, in tokens.", scheduler.prefix_queries),
            ("prefix_cache_hits", "Prefix cache hits, in tokens.", scheduler.prefix_hits),
            ("num_preemptions", "Cumulative number of preemptions.", scheduler.preemptions),
            ("prompt_tokens", "Number of prefill tokens processed.", scheduler.prompt_tokens),
            ("generation_tokens", "Number of generation tokens processed.", scheduler.generation_tokens),
        ):
            lines += _head(f"{name}_total", help_text, "counter")
            lines.append(f"vllm:{name}_total{{{labels}}} {float(count)}")
        lines += _head("request_success_total", "Count of successfully processed requests.", "counter")
        for reason in FINISHED_REASONS:
            count = scheduler.finished[reason]
            lines.append(f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {float(count)}')
        for name, help_text, histogram in (
            ("time_to_first_token_seconds", "Time to first token in seconds.", self.time_to_first_token),
            ("inter_token_latency_seconds", "Inter-token latency in seconds.", self.inter_token_latency),
            ("e2e_request_latency_seconds", "End-to-end request latency in seconds.", self.e2e_latency),
        ):
            lines += _head(name, help_text, "histogram")
            lines += histogram.lines(f"vllm:{name}", labels)
        return "\n".join(lines) + "\n"


def _head(name: str, help_text: str, kind: str) -> tuple[str, str]:
    return f"# HELP vllm:{name} {help_text}", f"# TYPE vllm:{name} {kind}"
