"""The controller: one lifecycle machine for each wanted replica, and one snapshot of them all for the workers."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping

import msgspec

from pilothouse.config.changes import changes
from pilothouse.config.paths import FleetPaths
from pilothouse.controller import snapshots
from pilothouse.controller.accounting import Accounting
from pilothouse.controller.directory_keeper import DirectoryKeeper
from pilothouse.controller.engine_client import EngineClient
from pilothouse.controller.fleet_status import fleet_status
from pilothouse.controller.posture import PostureWatch
from pilothouse.controller.publisher import Publisher
from pilothouse.controller.replica import NO_GAUGES, Replica, index_of, without_secret
from pilothouse.controller.replica_effects import ReplicaEffects
from pilothouse.engines.registry import driver
from pilothouse.model.control import ReplicaSuspected
from pilothouse.model.errors import PilothouseError
from pilothouse.model.events import DrainRequested, ReplicaAdopted, ReplicaHung, ReplicaRequested, SuspicionRaised
from pilothouse.model.fleet import FleetSnapshot, ReplicaState
from pilothouse.model.ids import DeploymentName, ModelName, ReplicaId
from pilothouse.model.spec import DeploymentSpec, FleetSpec
from pilothouse.model.status import FleetStatus, ReloadResult
from pilothouse.model.tenants import DirectoryChange
from pilothouse.model.units import DurationNs, seconds
from pilothouse.placement import host
from pilothouse.placement.local import LocalPlacement
from pilothouse.placement.weights import ProgressSink
from pilothouse.policy import reconciliation
from pilothouse.policy.reconciliation import PresentReplica
from pilothouse.runtime.journal import Journal
from pilothouse.runtime.live import monotonic_now
from pilothouse.store.ledger import Ledger
from pilothouse.store.tenants import TenantStore
from pilothouse.telemetry.board import Boards, read_boards
from pilothouse.telemetry.exposition import Exposition, expose

SCRAPE_EVERY_S = 3.0
REPLACE_GRACE = DurationNs(seconds(600.0))
"""How long a replica that is replaced or not wanted any more may finish its turns: the longest are agents' answers."""
TAKE_OVER_TIMEOUT_S = 10.0
"""How long a new controller looks at the replicas of the one before it, before it says anything to the workers."""
_LEFTOVER_GRACE_S = 5.0
_LOOKED_AT = (ReplicaState.READY, ReplicaState.FAILED, ReplicaState.DRAINING, ReplicaState.STOPPED)

_logger = logging.getLogger(__name__)


class Controller:
    """Makes what runs become what the fleet file wants. Belongs to one event loop.

    Args:
        spec: the fleet, checked by its engines.
        paths: where its files are; they exist.
        env: the operator's environment.
        load_spec: reads and checks the fleet file again; raises PilothouseError.
        tenants: who may ask.
        ledger: what turns cost.
        progress: hears of downloads too; each replica's detail shows its own.
        fleet_file: the file's path for display, `None` for the built-in fleet.
    """

    def __init__(
        self,
        spec: FleetSpec,
        paths: FleetPaths,
        *,
        env: Mapping[str, str],
        load_spec: Callable[[], FleetSpec],
        tenants: TenantStore,
        ledger: Ledger,
        progress: ProgressSink,
        fleet_file: str | None = None,
    ) -> None:
        self._spec = spec
        self._paths = paths
        self._load_spec = load_spec
        self._fleet_file = fleet_file
        self._replicas: dict[ReplicaId, Replica] = {}
        self._created: dict[ModelName, int] = {}
        self._snapshot = FleetSnapshot(fleet=spec.name, version=0)
        self._awaited: set[ReplicaId] = set()  # taken over from an earlier controller and not looked at yet
        self._settling = False
        self._open = self._stopping = False
        self._reloading = asyncio.Lock()
        self._none_left = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._take_over_timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._placement = LocalPlacement(paths, env)
        self._client = EngineClient()
        self._directory = DirectoryKeeper(tenants, paths.tenants, self._publish_change)
        self._accounting = Accounting(ledger, tenants, paths.spool_dir)
        self._publisher = Publisher(
            paths.control_socket,
            self._on_suspicion,
            self._directory.since,
            self._accounting.answer,
            self._accounting.usage,
        )
        self._posture = PostureWatch(spec, paths.advisories_dir, self._settle_soon)
        self.journal = Journal()
        """What the machines were told and what they answered, the last few thousand steps."""
        self._effects = ReplicaEffects(
            replicas=self._replicas,
            placement=self._placement,
            client=self._client,
            paths=paths,
            progress=progress,
            journal=self.journal,
            threads=self._threads_per_replica,
            on_change=self._on_change,
            published=lambda: self._snapshot,
        )
        self._runtime = self._effects.runtime

    async def start(self) -> None:
        """Take over what runs, start what is missing, and speak to the workers. Raises PilothouseError."""
        await self._accounting.start(await self._directory.start())
        previous = snapshots.load(self._paths.snapshot, self._spec.name)
        await self._posture.start(previous)
        await self._publisher.start()
        if previous is not None:
            self._snapshot = previous
            self._created = {model.name: model.created for model in previous.models}
            self._publisher.publish(previous)
        adopted = await self._take_over()
        self._reconcile()
        if previous is not None:
            # What was ready is ready until a probe says otherwise: nothing is published before.
            kept = {
                replica.id
                for replica in self._replicas.values()
                if replica.id in adopted or not replica.driver.launches_process
            }
            self._awaited = {id_ for id_ in snapshots.ready_replicas(previous) & kept if self._begins(id_)}
            self._take_over_timer = self._loop.call_later(TAKE_OVER_TIMEOUT_S, self._end_take_over)
        self._open = True
        self._settle()
        self._tasks = [
            self._loop.create_task(each) for each in (self._scrape(), self._directory.run(), self._accounting.run())
        ]

    async def reload(self) -> ReloadResult:
        """Read the fleet file again and become what it says; failed replicas are tried again at once.

        Raises:
            PilothouseError: config_invalid, posture_denied and the like; then nothing was changed.
        """
        async with self._reloading:
            spec = await asyncio.to_thread(self._load_spec)
            if spec.name != self._spec.name:
                raise PilothouseError(
                    "config_invalid",
                    f"the fleet was started as {self._spec.name}, and the file now names it {spec.name}",
                    hint="Start the other fleet with `pilothouse up`, or restore the name.",
                )
            if self._stopping:
                raise PilothouseError("shutting_down", "The fleet is being stopped.")
            await self._posture.adopt(spec)
            described = changes(self._spec, spec)
            self._spec = spec
            await self._directory.refresh()
            for replica in list(self._replicas.values()):
                if replica.state is ReplicaState.FAILED:
                    self._runtime.post(replica.id, ReplicaRequested(at=monotonic_now()))
            self._settle()
            _logger.info("fleet file reloaded", extra={"changes": described})
            return ReloadResult(changes=described)

    async def refresh_tenants(self) -> None:
        """Tell the workers what has changed of tenants and keys; when this returns, they have been told."""
        await self._directory.refresh()

    async def stop(self) -> None:
        """Drain and end every replica, then let go of everything else."""
        self._stopping = True
        self._end_take_over()
        grace = DurationNs(seconds(self._spec.gateway.limits.drain_timeout_s))
        for replica in list(self._replicas.values()):
            self._runtime.post(replica.id, DrainRequested(at=monotonic_now(), grace=grace))
        self._settle()
        await self._none_left.wait()
        await self.close()

    async def close(self) -> None:
        """Let go of everything; the replicas run on, and the next controller adopts them."""
        self._open = False
        if self._take_over_timer is not None:
            self._take_over_timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._posture.close()
        await self._runtime.close()
        await self._publisher.close()
        await self._client.close()
        self._placement.close()

    def status(self) -> FleetStatus:
        """The fleet as it is now."""
        return self._status(read_boards(self._paths.board_dir))

    def metrics_text(self, accept: str) -> Exposition:
        """All metrics, in the format that `accept` (a request's header) asks for."""
        boards = read_boards(self._paths.board_dir)
        return expose(boards, self._status(boards), accept=accept)

    def _status(self, boards: Boards) -> FleetStatus:
        return fleet_status(
            self._spec,
            self._replicas.values(),
            workers=self._publisher.workers,
            boards=boards,
            snapshot_version=self._snapshot.version,
            fleet_file=self._fleet_file,
            postures=self._posture.statuses(),
        )

    def _deployments(self) -> Iterator[DeploymentSpec]:
        return (deployment for model in self._spec.models for deployment in model.deployments)

    def _threads_per_replica(self) -> int:
        launched = sum(each.replicas for each in self._deployments() if driver(each.engine.name).launches_process)
        return max(1, host.usable_cores() // max(1, launched))

    # Taking over

    async def _take_over(self) -> set[ReplicaId]:
        """Adopt the processes that the fleet file still pins, and end the others that are recorded."""
        recorded = self._placement.recorded()
        adopted = {replica_id for replica_id in recorded if self._adopt(replica_id)}
        leftovers = [replica_id for replica_id in recorded if replica_id not in adopted]
        ends = (self._placement.end_recorded(each, grace_s=_LEFTOVER_GRACE_S) for each in leftovers)
        for replica_id, failure in zip(leftovers, await asyncio.gather(*ends, return_exceptions=True), strict=True):
            known = {"replica": replica_id}
            if isinstance(failure, BaseException):
                _logger.error("a leftover process could not be ended", extra={**known, "reason": str(failure)})
            else:
                _logger.info("leftover of an earlier controller ended", extra=known)
        return adopted

    def _adopt(self, replica_id: ReplicaId) -> bool:
        for deployment in self._deployments():
            index = index_of(replica_id, deployment)
            if index is None:
                continue
            try:
                process = self._placement.adoptable(replica_id, deployment.digest())
            except PilothouseError as error:
                _logger.warning("a record cannot be read", extra={"replica": replica_id, "reason": error.message})
                return False
            if process is None:
                return False
            replica = self._add(deployment, index)
            self._effects.watch(replica, process)
            _logger.info("replica adopted", extra={"replica": replica_id, "pid": process.pid})
            endpoint = without_secret(process.endpoint)
            self._runtime.post(replica_id, ReplicaAdopted(at=monotonic_now(), pid=process.pid, endpoint=endpoint))
            return True
        return False

    def _end_take_over(self) -> None:
        if self._awaited:
            late = sorted(self._awaited)
            _logger.warning("replicas that were taken over do not answer", extra={"replicas": late})
            self._awaited.clear()
            self._settle_soon()

    # Becoming what the fleet file says

    def _add(self, deployment: DeploymentSpec, index: int) -> Replica:
        replica = Replica(deployment, driver(deployment.engine.name), index, self._spec.name)
        self._replicas[replica.id] = replica
        self._runtime.add(replica.id, replica.machine)
        return replica

    def _reconcile(self) -> None:
        pinned = {deployment.name: deployment for deployment in self._deployments()}
        present: dict[DeploymentName, list[PresentReplica]] = {name: [] for name in pinned}
        for replica in self._replicas.values():
            name = replica.deployment.name
            present.setdefault(name, []).append(replica.present(pinned.get(name)))
        for name, replicas in present.items():
            deployment = pinned.get(name)
            step = reconciliation.choose(0 if deployment is None else deployment.replicas, replicas)
            if deployment is not None and self._posture.denies(deployment):
                step = reconciliation.without_starts(step, replicas)
            for replica_id in step.drain:
                self._runtime.post(replica_id, DrainRequested(at=monotonic_now(), grace=REPLACE_GRACE))
            for index in step.start:
                assert deployment is not None, "none is started of a deployment of which none is wanted"
                self._runtime.post(self._add(deployment, index).id, ReplicaRequested(at=monotonic_now()))

    def _on_change(self, replica: Replica) -> None:
        """A machine has published its state; called while that machine is at work."""
        if replica.state is not ReplicaState.READY:
            replica.gauges = NO_GAUGES
        if not self._begins(replica.id):
            self._awaited.discard(replica.id)
        self._settle_soon()

    def _begins(self, replica_id: ReplicaId) -> bool:
        return self._replicas[replica_id].state not in _LOOKED_AT

    def _settle_soon(self) -> None:
        # Not from within a machine's step: what a step begets is seen whole, and told to the workers once.
        if not self._settling:
            self._settling = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        """Forget what has stopped, start and drain what is due, tell the workers."""
        self._settling = False
        if not self._open:
            return
        for replica in [each for each in self._replicas.values() if each.state is ReplicaState.STOPPED]:
            self._runtime.remove(replica.id)
            del self._replicas[replica.id]
        if not self._stopping:
            self._reconcile()
        elif not self._replicas:
            self._none_left.set()
        self._publish()

    def _publish(self) -> None:
        if self._awaited:
            return
        now = int(time.time())
        self._created = {model.name: self._created.get(model.name, now) for model in self._spec.models}
        before = self._snapshot
        after = snapshots.build(
            self._spec, self._replicas.values(), self._created, self._posture.verdict, version=before.version + 1
        )
        if msgspec.structs.replace(after, version=before.version) == before:
            return
        self._snapshot = after
        snapshots.save(self._paths.snapshot, after)
        self._publisher.publish(after)

    def _publish_change(self, change: DirectoryChange) -> None:
        self._publisher.publish_change(change)

    # Watching

    def _on_suspicion(self, message: ReplicaSuspected) -> None:
        if message.replica in self._replicas:
            event = ReplicaHung if message.silent else SuspicionRaised
            self._runtime.post(message.replica, event(at=monotonic_now(), reason=message.reason))

    async def _scrape(self) -> None:
        while True:
            ready = [replica for replica in self._replicas.values() if replica.state is ReplicaState.READY]
            await asyncio.gather(*map(self._scrape_one, ready))
            await asyncio.sleep(SCRAPE_EVERY_S)

    async def _scrape_one(self, replica: Replica) -> None:
        endpoint = replica.endpoint
        assert endpoint is not None, "a Ready replica has an endpoint"
        try:
            gauges = await self._client.gauges(replica.driver, replica.deployment, endpoint)
        except Exception as error:  # a driver that cannot read its engine's page must not end the scraping of others
            _logger.error("metrics of an engine could not be read", exc_info=error, extra={"replica": replica.id})
            return
        if replica.state is ReplicaState.READY and replica.endpoint is endpoint:
            replica.gauges = gauges
