"""The worker process: `python -P -m pilothouse.gateway.worker BOOT.json`.

It serves from memory. What it needs is in the boot file (`model/boot.py`), the last snapshot on disk and the pepper;
the controller is listened to, not waited for.
"""

import asyncio
import gc
import logging
import os
import secrets
import signal
import socket
import ssl
import sys
import time
from pathlib import Path

import msgspec
import uvloop

import pilothouse
from pilothouse.gateway.access_log import AccessLog
from pilothouse.gateway.callers import Callers
from pilothouse.gateway.client_connection import ClientConnection
from pilothouse.gateway.controller_link import ControllerLink
from pilothouse.gateway.cors import CrossOrigin
from pilothouse.gateway.filter_sets import FilterSets
from pilothouse.gateway.host_load import SHARE_EVERY_S, HostLoad
from pilothouse.gateway.meters import Meters
from pilothouse.gateway.plane import DataPlane
from pilothouse.gateway.queue_handover import QueueHandover
from pilothouse.gateway.tls import CertificateWatch, make_context
from pilothouse.gateway.turn_log import TurnLog
from pilothouse.gateway.turns import Turns
from pilothouse.model.boot import WorkerBoot
from pilothouse.model.errors import PilothouseError, Refusal
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.ids import FleetName
from pilothouse.model.spec import QueueSpec, SharedLimitsSpec
from pilothouse.model.units import SECOND, MonotonicNs, seconds
from pilothouse.policy.draw import Draws
from pilothouse.policy.fairness.queue import DEFAULT_TIERS, QueueSettings, TierSpec
from pilothouse.policy.limits.lease import FailMode, LeaseSettings
from pilothouse.policy.limits.lease_book import LeaseBook
from pilothouse.policy.tokens.verifier import TokenVerifier
from pilothouse.runtime.timer_wheel import TICK, TimerWheel
from pilothouse.store.directory_file import read_parts
from pilothouse.store.lease_exchange import LeaseExchange
from pilothouse.store.redis_authority import RedisAuthority
from pilothouse.store.revocations import RevocationReader
from pilothouse.store.spool import SpoolWriter
from pilothouse.telemetry import logs
from pilothouse.telemetry.board import BoardWriter, board_path
from pilothouse.telemetry.traces import Traces

LISTEN_BACKLOG = 2048
"""The kernel caps it at net.core.somaxconn (4,096); a burst of a thousand clients waits instead of being refused."""

_POLL_DRAINED_S = 0.02
_LAST_WRITES_S = 0.5
_CERTIFICATES_EVERY_S = 0.5
_REVOCATIONS_EVERY_S = 0.25
_HANDSHAKE_S = 10.0  # as long as for a request's head
_SWITCH_INTERVAL_S = 0.0005
_PARENT_GONE = "the supervisor is gone"

log = logging.getLogger("pilothouse.gateway")


class Worker:
    """One worker, from boot to exit."""

    def __init__(self, boot: WorkerBoot, loop: asyncio.AbstractEventLoop) -> None:
        self._boot = boot
        self._loop = loop
        self._stop = asyncio.Event()
        self._board = BoardWriter(board_path(Path(boot.board_dir), boot.index), worker=boot.index)
        self._wheel = TimerWheel(_now())
        self._access_log = (
            AccessLog(Path(boot.access_log_path), boot.access_log_sample, Draws(boot.index))
            if boot.access_log_path is not None
            else None
        )
        self._plane = DataPlane(
            fleet=boot.fleet,
            limits=boot.limits,
            pepper=_read_pepper(Path(boot.pepper_path)),
            meters=Meters(self._board),
            wheel=self._wheel,
            loop=loop,
            seed=boot.index,
            cors=CrossOrigin(boot.cors_origins),
            access_log=self._access_log,
            traces=_make_traces(boot),
        )
        self._plane.queue_settings = _queue_settings(boot.queue)
        self._plane.workers = boot.workers
        self._handover = QueueHandover(Path(boot.board_dir), boot.index)
        self._plane.queue_counters = self._handover.latest()
        self._host_load = HostLoad(Path(boot.board_dir), boot.index)
        callers = self._plane.callers
        self._link = ControllerLink(boot.control_socket, boot.index, self._apply, callers, self._reread_tenants)
        self._revocations = RevocationReader(Path(boot.revocations_path))
        life = f"{boot.index}-{os.getpid()}-{secrets.token_hex(4)}"
        self._turn_log = TurnLog(SpoolWriter(Path(boot.spool_dir), life))
        shared = boot.shared_limits
        book = LeaseBook(life, _lease_settings(shared))
        self._redis = _redis(shared, boot.fleet)
        self._leases = LeaseExchange(book, self._redis or self._link)
        self._turns = self._plane.turns = Turns(callers, self._plane.meters, book, self._leases.ask, self._turn_log)
        self._plane.report_suspicion = self._link.report
        self._plane.ask_usage = self._link.usage
        if boot.token_issuers:
            self._plane.tokens = TokenVerifier(boot.token_issuers)
        self._servers: list[asyncio.Server] = []
        self._compiling_for: FleetSnapshot | None = None

    async def run(self) -> None:
        """Serve until told to stop, then drain."""
        snapshot = _read_snapshot(Path(self._boot.snapshot_path))
        if snapshot is not None:
            self._serve(snapshot, FilterSets(snapshot))
        self._read_tenants()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        self._hold_lifeline()
        self._turn_wheel()
        self._share_load_often()
        running = [
            self._loop.create_task(each) for each in (self._link.run(), self._leases.run(), self._turn_log.run())
        ]
        if self._plane.tokens is not None:
            running.append(self._loop.create_task(_keep_token_keys(self._plane.tokens)))
        tls = self._boot.tls
        await self._listen(make_context(tls) if tls is not None else None)
        watch = self._loop.create_task(self._follow_certificates(CertificateWatch(tls))) if tls is not None else None
        log.info("worker serves", extra={"snapshot_version": self._plane.table.snapshot.version})
        await self._stop.wait()
        if watch is not None:
            watch.cancel()
        await self._drain()
        for task in running:
            task.cancel()
        if self._redis is not None:
            await self._redis.close()
        self._turn_log.close()
        self._board.close()
        if self._access_log is not None:
            self._access_log.close()
        if self._plane.traces is not None:
            self._plane.traces.close()

    async def _listen(self, context: ssl.SSLContext | None) -> None:
        """Accept on the sockets with this context, and no more with the one before. Connections are not touched."""
        before, self._servers = self._servers, []
        for fd in self._boot.listen_fds:
            listener = socket.socket(fileno=os.dup(fd))
            listener.setblocking(False)
            server = await self._loop.create_server(
                lambda: ClientConnection(self._plane),
                sock=listener,
                backlog=LISTEN_BACKLOG,
                ssl=context,
                ssl_handshake_timeout=_HANDSHAKE_S if context is not None else None,
            )
            self._servers.append(server)
        for server in before:
            server.close()

    async def _follow_certificates(self, watch: CertificateWatch) -> None:
        while True:
            await asyncio.sleep(_CERTIFICATES_EVERY_S)
            context = watch.changed()
            if context is not None:
                await self._listen(context)

    def _apply(self, snapshot: FleetSnapshot) -> None:
        """Serve by a snapshot from now on; or in a moment, if its filters have to be compiled."""
        if snapshot.version < self._plane.table.snapshot.version:
            log.warning("older snapshot than the one served", extra={"snapshot_version": snapshot.version})
        compiling = self._compiling_for is not None
        if not compiling and self._plane.table.filters.serves(snapshot):
            self._serve(snapshot, self._plane.table.filters)
            return
        self._compiling_for = snapshot
        if not compiling:
            self._plane.spawn(self._compile_filters())

    async def _compile_filters(self) -> None:
        """Compile in a thread, meanwhile the event loop serves. Newer snapshots may come; the newest is served then."""
        while (snapshot := self._compiling_for) is not None:
            filters = await asyncio.to_thread(FilterSets, snapshot, self._plane.table.filters)
            newest = self._compiling_for
            if newest is not None and filters.serves(newest):
                self._compiling_for = None
                self._serve(newest, filters)

    def _serve(self, snapshot: FleetSnapshot, filters: FilterSets) -> None:
        self._plane.apply(snapshot, filters)
        self._turns.use_prices(snapshot)
        self._board.set_snapshot_version(snapshot.version)

    def _hold_lifeline(self) -> None:
        fd = self._boot.lifeline_fd
        if fd is None:
            return

        def ended() -> None:
            self._loop.remove_reader(fd)
            log.warning("worker stops", extra={"reason": _PARENT_GONE})
            self._stop.set()

        self._loop.add_reader(fd, ended)

    def _turn_wheel(self) -> None:
        self._wheel.turn(_now())
        self._plane.follow_clock()
        for queue in self._plane.queues.values():
            queue.tick()
        self._handover.keep(self._plane.queues)
        if self._access_log is not None:
            self._access_log.flush()
        self._host_load.look_around()
        if self._host_load.alone:
            self._share_load()
        self._loop.call_later(TICK / SECOND, self._turn_wheel)

    def _share_load_often(self) -> None:
        if not self._host_load.alone:
            self._share_load()
        self._loop.call_later(SHARE_EVERY_S, self._share_load_often)

    def _share_load(self) -> None:
        """Show the other workers what is in flight from here, and see what is from there."""
        elsewhere = self._host_load.elsewhere()
        for replica in self._plane.table.replicas.values():
            replica.show_load()
            replica.hear_load(round(elsewhere.get(replica.id, 0.0)))

    def _read_tenants(self) -> None:
        """Before anybody is served: the directory, and what has been revoked since it was written."""
        try:
            self._plane.callers.use(read_parts(Path(self._boot.tenants_path)))
        except (PilothouseError, msgspec.MsgspecError) as error:
            log.warning("tenants unreadable; waiting for the controller", extra={"reason": str(error)})
        self._look_for_revocations()
        # What is here now stays: a collection would look at all of it, for some ten milliseconds, while streams wait.
        gc.collect()
        gc.freeze()

    async def _reread_tenants(self) -> None:
        """The same while others are served: part by part, so that nobody waits for long."""
        fresh = Callers()
        try:
            for part in read_parts(Path(self._boot.tenants_path)):
                fresh.add(part)
                await asyncio.sleep(0)
        except (PilothouseError, msgspec.MsgspecError) as error:
            log.warning("tenants unreadable", extra={"reason": str(error)})
        else:
            self._plane.callers.become(fresh)

    def _look_for_revocations(self) -> None:
        """What was revoked on this host, by whomever: it has to stop also while there is no controller."""
        revoked = self._revocations.news()
        if revoked:
            self._plane.callers.revoke(revoked)
        self._loop.call_later(_REVOCATIONS_EVERY_S, self._look_for_revocations)

    async def _drain(self) -> None:
        """Take nothing new, let what runs finish, end what does not, and leave."""
        plane = self._plane
        plane.draining = True
        for server in self._servers:
            server.close()
        for fd in self._boot.listen_fds:
            os.close(fd)  # the last copy of the last worker: from then on clients are refused and do not hang
        log.info("worker drains", extra={"exchanges": _running(plane), "connections": len(plane.connections)})
        for connection in list(plane.connections):
            if connection.exchange is None and not connection.parser.in_message:
                plane.wheel.arm(connection, plane.delays.drained_idle)
        deadline = time.monotonic() + self._boot.limits.drain_timeout_s
        while plane.connections and time.monotonic() < deadline:  # noqa: ASYNC110 - streams end on their own
            await asyncio.sleep(_POLL_DRAINED_S)
        refusal = Refusal(code="shutting_down", message="The gateway is shutting down; the answer was cut short.")
        for connection in list(plane.connections):
            if connection.exchange is not None:
                connection.exchange.fail(refusal)
            connection.close()
        give_up = time.monotonic() + _LAST_WRITES_S
        while plane.connections and time.monotonic() < give_up:  # noqa: ASYNC110 - the same
            await asyncio.sleep(_POLL_DRAINED_S)
        for connection in list(plane.connections):
            connection.abort()
        for replica in plane.table.replicas.values():
            replica.retire()
        await asyncio.sleep(0)  # the aborted connections' last callbacks
        log.info("worker ends")


def _make_traces(boot: WorkerBoot) -> Traces | None:
    spec = boot.traces
    if spec is None:
        return None
    # The thread that sends spans may hold the interpreter for this long; by default 5 ms, a long pause in a stream.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    return Traces(
        spec.endpoint,
        spec.sample,
        draws=Draws(boot.index),
        fleet=boot.fleet,
        worker=boot.index,
        version=pilothouse.__version__,
    )


async def _keep_token_keys(verifier: TokenVerifier) -> None:
    # Not before somebody needs it: it is an extra, and loads a good deal.
    from pilothouse.store.token_keys import TokenKeysKeeper

    def failed(issuer: str, reason: str) -> None:
        log.warning("an issuer's keys could not be fetched", extra={"issuer": issuer, "reason": reason})

    await TokenKeysKeeper(verifier, failed).run()


def _queue_settings(spec: QueueSpec) -> QueueSettings:
    tiers = []
    for each in DEFAULT_TIERS:
        guarantee, ceiling = spec.tiers.get(each.tier, (each.guarantee, each.ceiling))
        tiers.append(TierSpec(tier=each.tier, guarantee=guarantee, ceiling=ceiling))
    return QueueSettings(
        tiers=tuple(tiers),
        max_waiting=spec.max_waiting,
        max_waiting_tokens=spec.max_waiting_tokens,
        max_wait_ns=seconds(spec.max_wait_s),
        aging_ns=seconds(spec.aging_s),
    )


def _lease_settings(shared: SharedLimitsSpec) -> LeaseSettings:
    ratio = 1.0 if shared.open_share is None else shared.open_share
    return LeaseSettings(fail_mode=FailMode.OPEN if ratio else FailMode.CLOSED, open_ratio=ratio)


def _redis(shared: SharedLimitsSpec, fleet: FleetName) -> RedisAuthority | None:
    if shared.redis is None:
        return None
    return RedisAuthority(shared.redis, fleet, LeaseSettings().term // 1000)


def _running(plane: DataPlane) -> int:
    """Connections with a request under way."""
    return sum(
        connection.exchange is not None or connection.parser.in_message for connection in list(plane.connections)
    )


def _now() -> MonotonicNs:
    return MonotonicNs(time.monotonic_ns())


def _read_pepper(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PilothouseError("state_unreadable", f"{path}: {error.strerror}") from error


def _read_snapshot(path: Path) -> FleetSnapshot | None:
    """The last snapshot that a controller wrote; `None` on the very first start, or if it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=FleetSnapshot)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("snapshot unreadable; waiting for the controller", extra={"path": str(path), "reason": str(error)})
        return None


def main(argv: list[str] | None = None) -> int:
    """Run a worker to its end. Returns the exit code: 0 after a drain, 1 if it could not start."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1:
        os.write(2, b"usage: python -P -m pilothouse.gateway.worker BOOT.json\n")
        return 2
    boot = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=WorkerBoot)
    logs.configure(f"worker-{boot.index}", human=False)

    async def serve() -> None:
        await Worker(boot, asyncio.get_running_loop()).run()

    try:
        uvloop.run(serve())
    except PilothouseError as error:
        log.error(error.message, extra={"code": error.code, "hint": error.hint})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
