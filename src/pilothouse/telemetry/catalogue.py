"""Every metric, in one table: what is written, what `/metrics` shows and what the reference documents.

Names are `pilothouse_<noun>_<unit>` in base units, ratios are 0 to 1. Every label has a bounded set of values: names
out of the fleet file, codes out of our own tables. A name that a client made up, a key or a user is never a label.
"""

import enum

import msgspec

from pilothouse.telemetry.board_layout import Kind

# As vLLM's TIME_TO_FIRST_TOKEN_BUCKETS (v1/metrics/buckets), whose first 16 are OpenTelemetry's for
# gen_ai.server.time_to_first_token: the panels people have work on ours.
TIME_TO_FIRST_TOKEN_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip

# As vLLM's INTER_TOKEN_LATENCY_BUCKETS, whose 0.01 to 2.5 are OpenTelemetry's for gen_ai.server.time_per_output_token;
# three finer ones below, since small models and speculative decoding stream faster than 10 ms.
INTER_TOKEN_LATENCY_BOUNDS = (
    0.001, 0.0025, 0.005,
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip

# As OpenTelemetry's for gen_ai.server.request.duration (powers of two from 10 ms), continued to some 20 minutes.
REQUEST_DURATION_BOUNDS = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
    163.84, 327.68, 655.36, 1310.72,
)  # fmt: skip

# The gateway's own time is tens of microseconds when all is well, and everything above a few milliseconds is an alarm.
OVERHEAD_BOUNDS = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip

UNKNOWN_MODEL = "unknown"
"""The `model` of a request that named one the fleet does not have."""
NO_MODEL = ""
"""The `model` of a request that ended before it named one."""


class Reason(enum.StrEnum):
    """What `reason` may be besides a code of the error table."""

    OK = "ok"
    ENGINE_ERROR = "engine_error"
    CLIENT_DISCONNECTED = "client_disconnected"


class DisconnectPhase(enum.StrEnum):
    """How far a request was when its client went away."""

    BEFORE_FIRST_BYTE = "before_first_byte"
    STREAMING = "streaming"
    UNARY = "unary"


class TokenKind(enum.StrEnum):
    """Which tokens, as the engine reports them; cached ones are counted among the input ones too."""

    INPUT = "input"
    CACHED = "cached"
    OUTPUT = "output"


class Source(enum.StrEnum):
    """Who tells: workers through the board, or the controller from what it knows."""

    WORKER = "worker"
    CONTROLLER = "controller"


class MetricSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One metric. `labels` are in the order in which they are shown; `bounds` are a histogram's."""

    name: str
    kind: Kind
    source: Source
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


def _worker(name: str, kind: Kind, help: str, *labels: str, bounds: tuple[float, ...] = ()) -> MetricSpec:  # noqa: A002
    return MetricSpec(name=name, kind=kind, source=Source.WORKER, help=help, labels=labels, bounds=bounds)


def _controller(name: str, kind: Kind, help: str, *labels: str) -> MetricSpec:  # noqa: A002
    return MetricSpec(name=name, kind=kind, source=Source.CONTROLLER, help=help, labels=labels)


REQUESTS = _worker(
    "pilothouse_requests_total", Kind.COUNTER,
    "Requests that ended, by HTTP status and reason: ok, engine_error (the engine's own refusal, passed on), "
    "client_disconnected, or a code of the error table.",
    "model", "route", "code", "reason",
)  # fmt: skip
REQUEST_DURATION = _worker(
    "pilothouse_request_duration_seconds", Kind.HISTOGRAM,
    "Time from the first byte of a request to the last of its response.",
    "model", bounds=REQUEST_DURATION_BOUNDS,
)  # fmt: skip
TIME_TO_FIRST_TOKEN = _worker(
    "pilothouse_time_to_first_token_seconds", Kind.HISTOGRAM,
    "Time from the first byte of a streamed request to its first event with content.",
    "model", bounds=TIME_TO_FIRST_TOKEN_BOUNDS,
)  # fmt: skip
INTER_TOKEN_LATENCY = _worker(
    "pilothouse_inter_token_latency_seconds", Kind.HISTOGRAM,
    "Mean time between the output tokens of a streamed response after the first, one observation for each response.",
    "model", bounds=INTER_TOKEN_LATENCY_BOUNDS,
)  # fmt: skip
OVERHEAD = _worker(
    "pilothouse_overhead_seconds", Kind.HISTOGRAM,
    "The gateway's own time: from having read the whole request to having sent it upstream.",
    "model", bounds=OVERHEAD_BOUNDS,
)  # fmt: skip
IN_FLIGHT_REQUESTS = _worker(
    "pilothouse_in_flight_requests", Kind.GAUGE,
    "Requests that a replica is working on, counted until the end of sequence.",
    "model", "replica",
)  # fmt: skip
IN_FLIGHT_TOKENS = _worker(
    "pilothouse_in_flight_tokens", Kind.GAUGE,
    "Estimated tokens of the requests that a replica is working on: what routing weighs.",
    "model", "replica",
)  # fmt: skip
TOKENS = _worker(
    "pilothouse_tokens_total", Kind.COUNTER,
    "Tokens as the engines counted them. Cached input tokens are among the input ones.",
    "model", "kind",
)  # fmt: skip
CLIENT_DISCONNECTS = _worker(
    "pilothouse_client_disconnects_total", Kind.COUNTER,
    "Requests whose client went away before the end.",
    "model", "phase",
)  # fmt: skip
UPSTREAM_RETRIES = _worker(
    "pilothouse_upstream_retries_total", Kind.COUNTER,
    "Requests sent again, to another replica or on a new connection, before any byte of an answer.",
    "model", "reason",
)  # fmt: skip
FILTER_MATCHES = _worker(
    "pilothouse_filter_matches_total", Kind.COUNTER,
    "What filters found, by entity, action, and direction: input (requests) or output (answers).",
    "model", "entity", "action", "direction",
)  # fmt: skip
CONNECTIONS = _worker(
    "pilothouse_connections", Kind.GAUGE,
    "Open client connections.",
)  # fmt: skip
UPSTREAM_CONNECTIONS = _worker(
    "pilothouse_upstream_connections", Kind.GAUGE,
    "Open connections to a replica, in use or kept alive.",
    "replica",
)  # fmt: skip
QUEUE_WAITING = _worker(
    "pilothouse_queue_waiting", Kind.GAUGE,
    "Requests that wait in the gateway for a place at a model.",
    "model",
)  # fmt: skip
QUEUE_WAIT = _worker(
    "pilothouse_queue_wait_seconds", Kind.HISTOGRAM,
    "Time that a request waited in the gateway for a place at a model; those that found one at once are not counted.",
    "model", bounds=TIME_TO_FIRST_TOKEN_BOUNDS,
)  # fmt: skip
PREEMPTIONS = _worker(
    "pilothouse_preemptions_total", Kind.COUNTER,
    "Requests that lost their place to a more urgent tier before a byte of their answer was sent.",
    "model",
)  # fmt: skip
ESTIMATED_TOKENS = _worker(
    "pilothouse_estimated_tokens_total", Kind.COUNTER,
    "Input tokens, as the engines counted them, of the requests whose estimate was compared with that.",
    "model",
)  # fmt: skip
ESTIMATE_ERROR = _worker(
    "pilothouse_estimate_error_tokens_total", Kind.COUNTER,
    "Tokens that those estimates were off, either way; over pilothouse_estimated_tokens_total it is the mean error.",
    "model",
)  # fmt: skip
SERIES_DROPPED = _worker(
    "pilothouse_metrics_series_dropped_total", Kind.COUNTER,
    "Series that a worker asked for when its board was full; their counts are under labels of the value other.",
)  # fmt: skip

SNAPSHOT_VERSION = _controller(
    "pilothouse_snapshot_version", Kind.GAUGE,
    "Version of the fleet snapshot that a worker serves.",
    "worker",
)  # fmt: skip
WORKERS = _controller("pilothouse_workers", Kind.GAUGE, "Gateway workers connected to the controller.")
BOARD_PROBLEMS = _controller(
    "pilothouse_board_problems", Kind.GAUGE,
    "Files and series of the workers' board that could not be read for this scrape, and are not in it.",
)  # fmt: skip
BUILD_INFO = _controller("pilothouse_build_info", Kind.GAUGE, "Always 1; the version is in the label.", "version")
REPLICA_STATE = _controller(
    "pilothouse_replica_state", Kind.GAUGE,
    "1 for the state that a replica is in, 0 for the others.",
    "replica", "deployment", "state",
)  # fmt: skip
REPLICA_RESTARTS = _controller(
    "pilothouse_replica_restarts_total", Kind.COUNTER,
    "Times that a replica's process ended unasked and was started again.",
    "replica",
)  # fmt: skip
DEPLOYMENT_POSTURE = _controller(
    "pilothouse_deployment_posture", Kind.GAUGE,
    "1 for what advisories allow a deployment to do (allowed, warned, allowed-without, denied), 0 for the others.",
    "deployment", "state",
)  # fmt: skip
ADVISORY_FEED_AGE = _controller(
    "pilothouse_advisory_feed_age_seconds", Kind.GAUGE,
    "Age of the newest feed of advisories, in whole days. It is absent where no advisory can apply.",
)  # fmt: skip
ENGINE_REQUESTS_RUNNING = _controller(
    "pilothouse_engine_requests_running", Kind.GAUGE,
    "Requests in the engine's batch, as the engine says.",
    "replica", "deployment", "model",
)  # fmt: skip
ENGINE_REQUESTS_WAITING = _controller(
    "pilothouse_engine_requests_waiting", Kind.GAUGE,
    "Requests in the engine's own queue, as the engine says.",
    "replica", "deployment", "model",
)  # fmt: skip
ENGINE_KV_USAGE = _controller(
    "pilothouse_engine_kv_usage_ratio", Kind.GAUGE,
    "Share of the engine's KV cache in use, 0 to 1, as the engine says.",
    "replica", "deployment", "model",
)  # fmt: skip

METRICS = (
    REQUESTS, REQUEST_DURATION, TIME_TO_FIRST_TOKEN, INTER_TOKEN_LATENCY, OVERHEAD, IN_FLIGHT_REQUESTS,
    IN_FLIGHT_TOKENS, TOKENS, CLIENT_DISCONNECTS, UPSTREAM_RETRIES, FILTER_MATCHES, CONNECTIONS,
    UPSTREAM_CONNECTIONS, QUEUE_WAITING, QUEUE_WAIT, PREEMPTIONS, ESTIMATED_TOKENS, ESTIMATE_ERROR, SERIES_DROPPED,
    SNAPSHOT_VERSION, WORKERS, BOARD_PROBLEMS, BUILD_INFO, REPLICA_STATE, REPLICA_RESTARTS,
    DEPLOYMENT_POSTURE, ADVISORY_FEED_AGE,
    ENGINE_REQUESTS_RUNNING, ENGINE_REQUESTS_WAITING, ENGINE_KV_USAGE,
)  # fmt: skip
