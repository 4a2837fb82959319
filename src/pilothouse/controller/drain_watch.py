"""Knows when a replica has drained, from what the workers write into their boards."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from pilothouse.model.fleet import FleetSnapshot, ReplicaState
from pilothouse.model.ids import ReplicaId
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board import Boards, read_boards

_POLL_S = 0.05
_QUIET_POLLS = 2  # a request may have been given its replica just before, and be counted just after


def in_flight(boards: Boards, replica: ReplicaId) -> int:
    """Requests that the workers have sent to the replica and that have not ended."""
    return round(boards.value(catalogue.IN_FLIGHT_REQUESTS.name, {"replica": replica}))


async def wait_until_drained(replica: ReplicaId, board_dir: Path, published: Callable[[], FleetSnapshot]) -> None:
    """Return once every living worker serves a snapshot without the replica, and none has a request on it."""
    quiet, version = 0, None
    while quiet < _QUIET_POLLS:
        snapshot = published()
        if version is None and not _takes_turns(snapshot, replica):
            version = snapshot.version
        if version is not None:
            boards = read_boards(board_dir)
            know = all(board.snapshot_version >= version or not _is_alive(board.pid) for board in boards.boards)
            quiet = quiet + 1 if know and not in_flight(boards, replica) else 0
        await asyncio.sleep(_POLL_S)


def _takes_turns(snapshot: FleetSnapshot, replica: ReplicaId) -> bool:
    return any(
        view.id == replica and view.state is ReplicaState.READY
        for model in snapshot.models
        for deployment in model.deployments
        for view in deployment.replicas
    )


def _is_alive(pid: int) -> bool:
    """Whether there is such a process; a dead worker's board stays, and its version with it."""
    return Path(f"/proc/{pid}").exists()
