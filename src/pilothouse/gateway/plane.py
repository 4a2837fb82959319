"""What all connections of a worker share: the routing table, the limits, the clock, the meters."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING

from pilothouse.gateway import routing_table
from pilothouse.gateway.access_log import AccessLog
from pilothouse.gateway.callers import Callers
from pilothouse.gateway.cors import CrossOrigin
from pilothouse.gateway.filter_sets import FilterSets
from pilothouse.gateway.meters import Meters
from pilothouse.gateway.model_queue import ModelQueue
from pilothouse.gateway.queue_handover import Counters
from pilothouse.gateway.routing_table import Candidate, ModelEntry, RoutingTable
from pilothouse.gateway.upstream import Replica
from pilothouse.model.errors import Refusal
from pilothouse.model.fleet import Capacity, FleetSnapshot, ModelView, ReplicaView
from pilothouse.model.ids import FleetName, ReplicaId, RequestId, TenantId
from pilothouse.model.spec import GatewayLimits
from pilothouse.model.units import SECOND, DurationNs, MonotonicNs, seconds
from pilothouse.policy import routing, silence
from pilothouse.policy.draw import Draws
from pilothouse.policy.fairness.queue import QueueSettings
from pilothouse.policy.retry import RetryBudget
from pilothouse.policy.tokens.verifier import TokenVerifier
from pilothouse.runtime.timer_wheel import TimerWheel
from pilothouse.telemetry.traces import Traces

if TYPE_CHECKING:
    from pilothouse.gateway.client_connection import ClientConnection
    from pilothouse.gateway.turns import Turns

SUSPICION = DurationNs(1 * SECOND)
"""How long a replica that refused a connection is passed over, unless nothing else is left: about two probes."""

log = logging.getLogger("pilothouse.gateway")


async def _no_usage(tenant: TenantId, query: str) -> bytes | Refusal:
    return Refusal(code="usage_unavailable", message="The usage cannot be told: there is no controller.")


DRAINED_IDLE = DurationNs(SECOND)
"""While the worker drains, how long a connection may wait for its next request. A client may be writing one at this
very moment, and would lose it; in this time it gets an answer, and with it the word that the connection ends."""


class Delays:
    """How long a client may take, converted once."""

    __slots__ = ("body", "drained_idle", "head", "idle")

    def __init__(self, limits: GatewayLimits) -> None:
        self.head = seconds(limits.head_timeout_s)
        self.body = seconds(limits.body_timeout_s)
        self.idle = seconds(limits.idle_timeout_s)
        self.drained_idle = DurationNs(min(self.idle, DRAINED_IDLE))


class DataPlane:
    """One worker's shared state. Lives in one event loop; nothing here awaits."""

    def __init__(
        self,
        *,
        fleet: FleetName,
        limits: GatewayLimits,
        pepper: bytes,
        meters: Meters,
        wheel: TimerWheel,
        loop: asyncio.AbstractEventLoop,
        seed: int,
        cors: CrossOrigin | None = None,
        access_log: AccessLog | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.limits = limits
        self.delays = Delays(limits)
        self.pepper = pepper
        self.cors = cors or CrossOrigin(())
        self.access_log = access_log
        self.traces = traces
        self.meters = meters
        self.wheel = wheel
        self.loop = loop
        self.retry_budget = RetryBudget()
        empty = FleetSnapshot(fleet=fleet, version=0)
        self.table = RoutingTable(empty, {}, meters, limits, FilterSets(empty))
        self.callers = Callers()
        self.queue_settings = QueueSettings()
        self.queue_counters: Counters = {}  # of the worker before this one
        self.workers = 1  # each has its part of the replicas' capacity
        self.queues: dict[str, ModelQueue] = {}
        self.turns: Turns | None = None  # without one nobody is limited and nothing is put on record
        self.wall_offset = 0  # what to add to the monotonic clock for the time since the epoch
        self.follow_clock()
        self.connections: set[ClientConnection] = set()
        self.draining = False
        self.tokens: TokenVerifier | None = None  # without one no tokens of other issuers are accepted
        self.ask_usage: Callable[[TenantId, str], Awaitable[bytes | Refusal]] = _no_usage
        self.report_suspicion: Callable[[ReplicaId, str, bool], None] = lambda replica, reason, silent: None
        self._draws = Draws(seed)
        self._suspected: set[ReplicaId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._id_prefix = f"req_{os.urandom(6).hex()}"
        self._id_count = 0

    def follow_clock(self) -> None:
        """Take in what has become of the wall clock. Once a tick will do for ends of keys and days."""
        self.wall_offset = time.time_ns() - time.monotonic_ns()

    def new_request_id(self) -> RequestId:
        """An id of our own: of fixed length, so that none is a prefix of another (vLLM aborts by prefix)."""
        self._id_count += 1
        return RequestId(f"{self._id_prefix}{self._id_count:012x}")

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run `work` as a task that is owned here."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def apply(self, snapshot: FleetSnapshot, filters: FilterSets | None = None) -> None:
        """Serve by `snapshot` from now on. `filters` are its own, compiled; without them that is done here and now."""
        before = self.table
        if filters is None:
            filters = before.filters if before.filters.serves(snapshot) else FilterSets(snapshot, before.filters)
        self.table, retired = routing_table.build(
            snapshot, before, self._make_replica, self.meters, self.limits, filters
        )
        for replica in retired:
            replica.retire()
        for name, entry in self.table.models.items():
            self._give_queue(name, entry)
        self._suspected &= self.table.replicas.keys()

    def _give_queue(self, name: str, entry: ModelEntry) -> None:
        whole = entry.capacity
        queue = self.queues.get(name)
        if whole is None:
            if queue is not None and entry.ready_count == 0:
                entry.queue = queue  # its replicas come back, and who waits goes on waiting
            return
        # What does not divide goes to everybody: one place too many waits in an engine, one too few nowhere.
        own = Capacity(slots=-(-whole.slots // self.workers), tokens=-(-whole.tokens // self.workers))
        if queue is None:
            queue = self.queues[name] = ModelQueue(
                self.queue_settings, own, self.meters.queue(name), self.loop.call_soon, time.monotonic_ns
            )
            queue.restore(self.queue_counters.get(name, {}))
        queue.set_capacity(own)
        entry.queue = queue

    def _make_replica(self, view: ReplicaView, model: ModelView) -> Replica:
        assert view.endpoint is not None
        return Replica(
            view.id,
            view.alias,
            view.endpoint,
            meters=self.meters.replica(model.name, view.id),
            wheel=self.wheel,
            loop=self.loop,
            spawn=self.spawn,
        )

    def choose(
        self, candidates: tuple[Candidate, ...], request: RequestId, failed: tuple[ReplicaId, ...]
    ) -> int | None:
        """The index of the candidate for a request that has already failed on `failed`."""
        loads = [each.replica.load_tokens for each in candidates]
        if not failed and not self._suspected:
            return routing.least_loaded(loads, request, self._draws)
        self._forgive()
        tried = {index for index, candidate in enumerate(candidates) if candidate.replica.id in failed}
        doubted = {index for index, candidate in enumerate(candidates) if candidate.replica.id in self._suspected}
        # A suspected replica is better than none: it may be the only one, and back already.
        index = routing.least_loaded(loads, request, self._draws, excluded=tried | doubted)
        return routing.least_loaded(loads, request, self._draws, excluded=tried) if index is None else index

    def suspect(self, replica: Replica, reason: str) -> None:
        """`replica` refused or dropped a connection: pass it over for a while, and have the controller look at it."""
        replica.suspected_until = MonotonicNs(self.wheel.now + SUSPICION)
        if replica.id not in self._suspected:
            self._suspected.add(replica.id)
            self.report_suspicion(replica.id, reason, False)
            log.warning("replica suspected", extra={"replica": replica.id, "reason": reason})

    def silent(self, replica: Replica) -> None:
        """`replica` let a request time out: pass it over for a while, and for longer once it seems to hang."""
        replica.silences += 1
        self.suspect(replica, "silent until the time-out")
        ejected_for = silence.ejection(replica.silences)
        if ejected_for:
            replica.suspected_until = MonotonicNs(self.wheel.now + ejected_for)
            reason = f"silent {replica.silences} times in a row"
            self.report_suspicion(replica.id, reason, True)
            log.error("replica hangs", extra={"replica": replica.id, "reason": reason})

    def _forgive(self) -> None:
        now, replicas = self.wheel.now, self.table.replicas
        self._suspected = {id_ for id_ in self._suspected if id_ in replicas and replicas[id_].suspected_until > now}

    def defect(self, error: Exception, request: RequestId | None) -> None:
        """Log an exception that must not have happened."""
        log.error("internal error", exc_info=error, extra={"request_id": request})
