"""Carries out what the lifecycle machines ask for, on this host's processes and over the network.

Every effect that is answered is answered whatever happens: a failure of the outside world is an event as well.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from pilothouse.config.paths import FleetPaths
from pilothouse.controller.drain_watch import wait_until_drained
from pilothouse.controller.engine_client import EngineClient
from pilothouse.controller.replica import PlacingProgress, Replica, without_secret
from pilothouse.model.effects import (
    AwaitDrained,
    Effect,
    KillProcess,
    LaunchProcess,
    PlaceReplica,
    Probe,
    PublishState,
    ReleasePlacement,
    TerminateProcess,
)
from pilothouse.model.errors import PilothouseError
from pilothouse.model.events import (
    DrainCompleted,
    Event,
    PlacementFailed,
    ProbeAnswered,
    ProcessExited,
    ProcessStarted,
    ReplicaPlaced,
)
from pilothouse.model.fleet import FleetSnapshot, ReplicaState
from pilothouse.model.ids import ReplicaId
from pilothouse.placement.local import LocalPlacement, RunningProcess
from pilothouse.placement.weights import ProgressSink
from pilothouse.runtime.journal import Journal
from pilothouse.runtime.live import Handler, LiveRuntime, monotonic_now

_logger = logging.getLogger(__name__)


class ReplicaEffects:
    """The handlers of all effects of replica lifecycles, and the runtime that calls them.

    `threads` is a replica's share of the host's cores at the time of its launch, `on_change` hears of every change of
    state after it was noted, and `published` is the snapshot that the workers are told.
    """

    def __init__(
        self,
        *,
        replicas: Mapping[ReplicaId, Replica],
        placement: LocalPlacement,
        client: EngineClient,
        paths: FleetPaths,
        progress: ProgressSink,
        journal: Journal,
        threads: Callable[[], int],
        on_change: Callable[[Replica], None],
        published: Callable[[], FleetSnapshot],
    ) -> None:
        self._replicas = replicas
        self._placement = placement
        self._client = client
        self._board_dir: Path = paths.board_dir
        self._progress = progress
        self._journal = journal
        self._threads = threads
        self._on_change = on_change
        self._published = published
        handlers: dict[type[Effect], Handler] = {
            PlaceReplica: self._place,
            LaunchProcess: self._launch,
            Probe: self._probe,
            PublishState: self._note_state,
            AwaitDrained: self._await_drained,
            TerminateProcess: self._terminate,
            KillProcess: self._kill,
            ReleasePlacement: self._release,
        }
        self.runtime = LiveRuntime(handlers, journal=journal)

    def watch(self, replica: Replica, process: RunningProcess) -> None:
        """Take down what is known of a process, and tell the machine when it ends."""
        replica.endpoint = process.endpoint
        replica.started_at = process.started_at

        def exited(status: int | None) -> None:
            replica.forget_process()
            tail = self._placement.log_tail(replica.id)
            self.runtime.post(replica.id, ProcessExited(at=monotonic_now(), status=status, log_tail=tail))

        self._placement.on_exit(process.pid, exited)

    async def _place(self, replica_id: str, _: PlaceReplica) -> Event:
        replica = self._replicas[ReplicaId(replica_id)]
        deployment, driver = replica.deployment, replica.driver
        try:
            if not driver.launches_process:
                replica.endpoint = driver.endpoint(deployment, host="", port=0, api_key="")
                return ReplicaPlaced(at=monotonic_now(), endpoint=without_secret(replica.endpoint))
            driver.require_installed(deployment)
            replica.placement = await self._placement.place(
                deployment,
                replica.id,
                memory_need=lambda weights: driver.memory_bytes(deployment, weights),
                progress=PlacingProgress(replica, self._progress),
            )
        except Exception as error:
            return _failure(replica, error)
        return ReplicaPlaced(at=monotonic_now())

    async def _launch(self, replica_id: str, _: LaunchProcess) -> Event:
        replica = self._replicas[ReplicaId(replica_id)]
        placed = replica.placement
        assert placed is not None, "the machine launches only what was placed"
        try:
            line = replica.driver.launch(
                replica.deployment,
                host=placed.host,
                port=placed.port,
                api_key=placed.api_key,
                weights=placed.weights,
                threads=self._threads(),
            )
            endpoint = replica.driver.endpoint(
                replica.deployment, host=placed.host, port=placed.port, api_key=placed.api_key
            )
            process = await self._placement.launch(placed, argv=line.argv, env=line.env, endpoint=endpoint)
        except Exception as error:
            return _failure(replica, error)
        self.watch(replica, process)
        return ProcessStarted(at=monotonic_now(), pid=process.pid, endpoint=without_secret(process.endpoint))

    async def _probe(self, replica_id: str, effect: Probe) -> Event:
        replica = self._replicas[ReplicaId(replica_id)]
        endpoint = replica.endpoint
        if endpoint is None:  # it ended while the probe was on its way
            return ProbeAnswered(at=monotonic_now(), token=effect.token, ready=False, listening=False)
        found = await self._client.probe(replica.driver, endpoint)
        return ProbeAnswered(
            at=monotonic_now(),
            token=effect.token,
            ready=found.ready,
            listening=found.listening,
            detail=found.detail,
        )

    def _note_state(self, replica_id: str, effect: PublishState) -> None:
        replica = self._replicas[ReplicaId(replica_id)]
        replica.detail = effect.detail
        replica.log_tail = effect.log_tail
        known: dict[str, object] = {"replica": replica.id, "state": effect.state.value}
        if effect.detail:
            known["detail"] = effect.detail
        if effect.state is ReplicaState.FAILED:
            _logger.warning("replica failed", extra={**known, "log_tail": effect.log_tail})
            _logger.debug("its story", extra={**known, "story": self._journal.story(replica.id)})
        else:
            _logger.info("replica state", extra=known)
        self._on_change(replica)

    async def _await_drained(self, replica_id: str, _: AwaitDrained) -> Event:
        await wait_until_drained(ReplicaId(replica_id), self._board_dir, self._published)
        return DrainCompleted(at=monotonic_now())

    def _terminate(self, replica_id: str, _: TerminateProcess) -> None:
        self.runtime.cancel(replica_id, AwaitDrained)
        self._placement.terminate(ReplicaId(replica_id))

    def _kill(self, replica_id: str, _: KillProcess) -> None:
        self._placement.kill(ReplicaId(replica_id))

    def _release(self, replica_id: str, _: ReleasePlacement) -> None:
        replica = self._replicas[ReplicaId(replica_id)]
        self.runtime.cancel(replica_id, PlaceReplica)
        self.runtime.cancel(replica_id, AwaitDrained)
        if replica.driver.launches_process:
            self._placement.release(replica.id)
        replica.forget_process()


def _failure(replica: Replica, error: Exception) -> PlacementFailed:
    """What kept a replica from being placed or launched, as an event."""
    if isinstance(error, PilothouseError):
        # The table's own hint is where the code is looked up; one for this case is not.
        hint = "" if error.hint == error.spec.fix else f". {error.hint}"
        return PlacementFailed(
            at=monotonic_now(),
            code=error.code,
            message=f"{error.message}{hint}",
            permanent=not error.spec.retryable,
        )
    _logger.error("placing a replica failed", exc_info=error, extra={"replica": replica.id})
    message = f"{type(error).__name__}: {error}"
    return PlacementFailed(at=monotonic_now(), code="internal_error", message=message, permanent=False)
