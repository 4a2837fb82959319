"""Handles on the board for everything the data plane counts, made once and kept."""

from bisect import bisect_left

from pilothouse.model.ids import ReplicaId
from pilothouse.model.requests import Usage
from pilothouse.policy.retry import Failure
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import BoardWriter, Counter
from pilothouse.telemetry.catalogue import DisconnectPhase, TokenKind


class ReplicaMeters:
    """What is in flight on a replica."""

    __slots__ = ("connections", "in_flight_requests", "in_flight_tokens")

    def __init__(self, board: BoardWriter, model: str, replica: ReplicaId) -> None:
        labels = {"model": model, "replica": replica}
        self.in_flight_requests = board.gauge(catalogue.IN_FLIGHT_REQUESTS.name, labels)
        self.in_flight_tokens = board.gauge(catalogue.IN_FLIGHT_TOKENS.name, labels)
        self.connections = board.gauge(catalogue.UPSTREAM_CONNECTIONS.name, {"replica": replica})


class QueueMeters:
    """Who waits for a model."""

    __slots__ = ("preemptions", "wait", "waiting")

    def __init__(self, board: BoardWriter, model: str) -> None:
        labels = {"model": model}
        self.waiting = board.gauge(catalogue.QUEUE_WAITING.name, labels)
        self.wait = board.histogram(catalogue.QUEUE_WAIT.name, catalogue.QUEUE_WAIT.bounds, labels)
        self.preemptions = board.counter(catalogue.PREEMPTIONS.name, labels)


class ModelMeters:
    """What happened to the requests for one model."""

    __slots__ = (
        "_board",
        "_cached",
        "_ended",
        "_input",
        "_model",
        "_output",
        "disconnects",
        "duration",
        "first_token",
        "inter_token",
        "overhead",
        "retries",
    )

    def __init__(self, board: BoardWriter, model: str) -> None:
        self._board = board
        self._model = model
        self._ended: dict[tuple[str, int, str], Counter] = {}
        labels = {"model": model}
        self.duration = board.histogram(catalogue.REQUEST_DURATION.name, catalogue.REQUEST_DURATION.bounds, labels)
        self.first_token = board.histogram(
            catalogue.TIME_TO_FIRST_TOKEN.name, catalogue.TIME_TO_FIRST_TOKEN.bounds, labels
        )
        self.inter_token = board.histogram(
            catalogue.INTER_TOKEN_LATENCY.name, catalogue.INTER_TOKEN_LATENCY.bounds, labels
        )
        self.overhead = board.histogram(catalogue.OVERHEAD.name, catalogue.OVERHEAD.bounds, labels)
        self._input = board.counter(catalogue.TOKENS.name, labels | {"kind": TokenKind.INPUT})
        self._cached = board.counter(catalogue.TOKENS.name, labels | {"kind": TokenKind.CACHED})
        self._output = board.counter(catalogue.TOKENS.name, labels | {"kind": TokenKind.OUTPUT})
        self.disconnects = {
            phase: board.counter(catalogue.CLIENT_DISCONNECTS.name, labels | {"phase": phase})
            for phase in DisconnectPhase
        }
        self.retries = {
            failure: board.counter(catalogue.UPSTREAM_RETRIES.name, labels | {"reason": failure})
            for failure in (Failure.CONNECT_FAILED, Failure.STALE_CONNECTION)
        }

    def exchange_ended(
        self, route: str, code: int, reason: str, duration_s: float, overhead_s: float, usage: Usage | None
    ) -> None:
        """Count a request that reached an engine, with its times and tokens.

        The handles' own methods would cost twice as much, and this is done for every request.
        """
        counter = self._ended.get((route, code, reason)) or self._counter(route, code, reason)
        counter.slots[counter.slot] += 1.0
        slots = counter.slots
        histogram = self.duration
        slots[histogram.slot + bisect_left(histogram.bounds, duration_s)] += 1.0
        slots[histogram.sum_slot] += duration_s
        if overhead_s:
            histogram = self.overhead
            slots[histogram.slot + bisect_left(histogram.bounds, overhead_s)] += 1.0
            slots[histogram.sum_slot] += overhead_s
        if usage is not None:
            slots[self._input.slot] += usage.input_tokens
            slots[self._output.slot] += usage.output_tokens
            if usage.cached_tokens:
                slots[self._cached.slot] += usage.cached_tokens

    def request_ended(self, route: str, code: int, reason: str) -> None:
        """Count a request by its route, HTTP status, and `Reason` or code of the error table."""
        counter = self._ended.get((route, code, reason)) or self._counter(route, code, reason)
        counter.add()

    def filter_matched(self, entity: str, action: str, direction: str, count: int) -> None:
        """Count what filters found. Handles are not kept: it is done once a turn at most, and seldom."""
        labels = {"model": self._model, "entity": entity, "action": action, "direction": direction}
        self._board.counter(catalogue.FILTER_MATCHES.name, labels).add(count)

    def _counter(self, route: str, code: int, reason: str) -> Counter:
        labels = {"model": self._model, "route": str(route), "code": str(code), "reason": str(reason)}
        counter = self._ended[(route, code, reason)] = self._board.counter(catalogue.REQUESTS.name, labels)
        return counter


class Meters:
    """All of a worker's handles."""

    def __init__(self, board: BoardWriter) -> None:
        self._board = board
        self._models: dict[str, ModelMeters] = {}
        self.connections = board.gauge(catalogue.CONNECTIONS.name, {})

    def refused(self, model: str, route: str, code: int, reason: str) -> None:
        """Count a request that ended here. `model` is of the fleet, NO_MODEL or UNKNOWN_MODEL; `route` is bounded."""
        self.model(model).request_ended(route, code, reason)

    def model(self, name: str) -> ModelMeters:
        """The handles of a model, NO_MODEL or UNKNOWN_MODEL."""
        meters = self._models.get(name)
        if meters is None:
            meters = self._models[name] = ModelMeters(self._board, name)
        return meters

    def queue(self, model: str) -> QueueMeters:
        """The handles of a model's queue."""
        return QueueMeters(self._board, model)

    def estimates(self, model: str) -> tuple[Counter, Counter]:
        """Input tokens whose estimate was compared with the truth, and how many tokens it was off."""
        labels = {"model": model}
        counted = self._board.counter(catalogue.ESTIMATED_TOKENS.name, labels)
        return counted, self._board.counter(catalogue.ESTIMATE_ERROR.name, labels)

    def replica(self, model: str, replica: ReplicaId) -> ReplicaMeters:
        """The handles of a replica."""
        return ReplicaMeters(self._board, model, replica)
