"""Service of 27 clients of a public trace in virtual time: the gateway's fair queue before the fake engine's scheduler.

The engine has the recorded rates of an A10G (`benchmarks/virtual_gateway.py`). Needs the trace: see
`benchmarks/client_trace.py`.
"""

from benchmarks.bars.report import Bar, main, tell
from benchmarks.client_trace import Served, TraceRequest, load_trace, service_differences, tokens_per_second
from benchmarks.virtual_gateway import A10G, ArrivalOrder, FairOrder, Queue, replay
from pilothouse.model.fleet import Capacity
from pilothouse.model.units import SECOND, DurationNs
from pilothouse.policy.fairness.queue import FairQueue, QueueSettings
from pilothouse.policy.limits.expected_output import ExpectedOutput

PUBLISHED_DIFFERENCE = 368.0
RECORDED_TOKENS_PER_S = 776.9

CAPACITY = Capacity(slots=256, tokens=12_500)
"""The recorded server admits by the most tokens held at once, which is less than the sum of the longest: so much that
first come, first served gets the recorded throughput."""


def measure() -> list[Bar]:
    """With output lengths that are known beforehand, as in the recorded runs, and with learned ones."""
    trace = load_trace()
    bars = []
    for name, learns in (("output known", False), ("output learned", True)):
        plain = _replay(trace, ArrivalOrder(CAPACITY), learns=learns)
        fair = _replay(trace, FairOrder(_fair_queue()), learns=learns)
        before, after = tokens_per_second(plain), tokens_per_second(fair)
        differences = service_differences(trace, fair)
        worst = max(differences)
        tell(f"{name}: first come, first served {max(service_differences(trace, plain)):.0f}, {before:.1f} tokens/s")
        bars += [
            Bar(
                name=f"maximum service difference, {name}",
                limit=f"<= {PUBLISHED_DIFFERENCE:g} (first come, first served as recorded: 760)",
                measured=f"{worst:.1f} (mean {sum(differences) / len(differences):.1f}), {len(fair)} served",
                passed=worst <= PUBLISHED_DIFFERENCE and len(fair) == len(trace),
                details={"first_come_first_served": round(max(service_differences(trace, plain)), 1)},
            ),
            Bar(
                name=f"throughput against first come, first served, {name}",
                limit="within 1 %",
                measured=f"{after:.1f} of {before:.1f} tokens/s ({after / before - 1:+.2%})",
                passed=abs(after / before - 1) <= 0.01,
                details={"recorded": RECORDED_TOKENS_PER_S},
            ),
        ]
    return bars


def _fair_queue() -> FairQueue:
    # The trace's queue is minutes long; the recorded server bounds neither.
    settings = QueueSettings(max_waiting_tokens=10**9, max_wait_ns=DurationNs(3600 * SECOND))
    return FairQueue(settings, CAPACITY)


def _replay(trace: list[TraceRequest], queue: Queue, *, learns: bool) -> list[Served]:
    learned = ExpectedOutput(quantile=0.7)  # the queue adds many up: nine tenths of each would leave room unused

    def expected(request: TraceRequest) -> int:
        return learned.expect(request.client, "m", None) if learns else request.output_tokens

    def observe(request: TraceRequest) -> None:
        learned.observe(request.client, "m", request.output_tokens)

    return replay(trace, queue, A10G, expected_output=expected, observe=observe)


if __name__ == "__main__":
    main("tenants", measure())
