"""The public trace of 27 clients, and its measure of fairness (Sheng et al., OSDI 2024; Ying1123/VTC-artifact).

The trace is not part of the project: PILOTHOUSE_DATA names the directory that has `vtc/` in it.
"""

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

DATA = Path(os.environ.get("PILOTHOUSE_DATA", "../shared/data"))

_WINDOW_S = 60.0
_STEP_S = 28.5
_WINDOWS = range(1, 20)
_WARM_UP_S = 1.0


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request of the trace."""

    at_s: float
    client: str
    input_tokens: int
    output_tokens: int


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request; times since the start of the trace."""

    request: TraceRequest
    first_token_s: float
    finished_s: float


def load_trace() -> list[TraceRequest]:
    """The 1,500 requests, by arrival."""
    with (DATA / "vtc" / "lmsys_arena_trace_27clients.csv").open(newline="") as file:
        return [
            TraceRequest(
                at_s=float(row["req_time_s"]),
                client=row["client"],
                input_tokens=int(row["prompt_len"]),
                output_tokens=int(row["output_len"]),
            )
            for row in csv.DictReader(file)
        ]


def service_differences(requests: Sequence[TraceRequest], served: Iterable[Served]) -> list[float]:
    """The service difference in each of 19 windows of a minute: how far clients are from what they asked for and what
    others got.

    Service is prompt + 2 * output tokens, spread evenly from first token to end. For client u with service y_u and
    demand q_u (both per second in the window), the difference is the sum of min(max_v y_v - y_u, |q_u - y_u|).
    """
    done = [each for each in served if each.finished_s >= _WARM_UP_S]
    clients = sorted({each.client for each in requests})
    differences = []
    for index in _WINDOWS:
        start = _STEP_S * index
        end = start + _WINDOW_S
        got = dict.fromkeys(clients, 0.0)
        asked = dict.fromkeys(clients, 0.0)
        for each in done:
            duration = max(each.finished_s - each.first_token_s, 1e-9)
            overlap = min(end, each.finished_s) - max(start, each.first_token_s)
            if overlap > 0:
                got[each.request.client] += _service(each.request) * overlap / duration / _WINDOW_S
        for request in requests:
            if start <= request.at_s < end:
                asked[request.client] += _service(request) / _WINDOW_S
        most = max(got.values())
        differences.append(sum(min(most - got[each], abs(asked[each] - got[each])) for each in clients))
    return differences


def tokens_per_second(served: Sequence[Served]) -> float:
    """Prompt and output tokens by the time until the last was finished."""
    tokens = sum(each.request.input_tokens + each.request.output_tokens for each in served)
    return tokens / max(each.finished_s for each in served)


def _service(request: TraceRequest) -> int:
    return request.input_tokens + 2 * request.output_tokens
