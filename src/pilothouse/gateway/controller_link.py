"""The worker's line to the controller: snapshots and tenants in, suspicions out.

Losing it changes nothing but the news.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pilothouse.gateway.callers import Callers
from pilothouse.model.control import (
    ControlMessage,
    DirectoryChanged,
    DirectoryStored,
    LeasesAnswered,
    LeasesReported,
    ReplicaSuspected,
    SnapshotPublished,
    UsageAnswered,
    UsageAsked,
    WorkerJoined,
)
from pilothouse.model.errors import PilothouseError, Refusal
from pilothouse.model.fleet import FleetSnapshot
from pilothouse.model.ids import ReplicaId, TenantId
from pilothouse.model.leases import LeaseAnswers, LeaseBatch
from pilothouse.wire import control_channel
from pilothouse.wire.control_channel import ControlChannelError

RECONNECT_S = 0.2
"""A new controller is heard within a fifth of a second; a missing one costs five connects a second."""

LEASES_TIMEOUT_S = 0.25
"""How long a request may wait for a lease; a healthy controller needs a hundredth of it."""

USAGE_TIMEOUT_S = 15.0

_READ_BYTES = 256 * 1024

log = logging.getLogger("pilothouse.gateway")


class ControllerLink:
    """Keeps a connection to the controller's socket for as long as the worker lives."""

    def __init__(
        self,
        socket_path: str,
        worker: int,
        apply: Callable[[FleetSnapshot], None],
        callers: Callers,
        reread: Callable[[], Awaitable[None]],
    ) -> None:
        self._path = socket_path
        self._worker = worker
        self._apply = apply
        self._callers = callers
        self._reread = reread
        self._awaited: dict[int, asyncio.Future[Any]] = {}
        self._asked = 0
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        """Connect, listen, connect again; until cancelled."""
        while True:
            try:
                await self._listen()
            except (OSError, ControlChannelError) as error:
                log.debug("no controller", extra={"reason": str(error)})
            await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            self._join(writer)
            self._writer = writer
            log.info("controller joined")
            decoder = control_channel.Decoder()
            while data := await reader.read(_READ_BYTES):
                for message in decoder.feed(data):
                    match message:
                        case SnapshotPublished(snapshot=snapshot):
                            self._apply(snapshot)
                        case DirectoryChanged(change=change):
                            if not self._callers.change(change):
                                self._join(writer)
                        case DirectoryStored():
                            await self._reread()
                            await asyncio.sleep(RECONNECT_S)  # the file may be as old as it was
                            self._join(writer)
                        case LeasesAnswered(number=number, answers=answers):
                            self._resolve(number, answers)
                        case UsageAnswered(number=number, body=body, refusal=refusal):
                            self._resolve(number, body.encode() if refusal is None else refusal)
            log.warning("controller lost; serving on from the last snapshot")
        finally:
            self._writer = None
            writer.close()

    async def exchange(self, batches: Sequence[LeaseBatch]) -> tuple[LeaseAnswers, ...]:
        """Report leases to the controller, the authority of this host.

        Raises:
            PilothouseError: limits_unavailable, when there is no controller or no answer in time.
        """
        number = self._next_number()
        message = LeasesReported(number=number, batches=tuple(batches))
        answers: tuple[LeaseAnswers, ...] = await self._ask(number, message, LEASES_TIMEOUT_S, "limits_unavailable")
        return answers

    async def usage(self, tenant: TenantId, query: str) -> bytes | Refusal:
        """What a tenant has used, as the body of an answer, or what is wrong with its question.

        Raises:
            PilothouseError: usage_unavailable, when there is no controller or no answer in time.
        """
        number = self._next_number()
        message = UsageAsked(number=number, tenant=tenant, query=query)
        answer: bytes | Refusal = await self._ask(number, message, USAGE_TIMEOUT_S, "usage_unavailable")
        return answer

    def _next_number(self) -> int:
        self._asked += 1
        return self._asked

    async def _ask(self, number: int, message: ControlMessage, timeout_s: float, code: str) -> Any:
        if self._writer is None:
            raise PilothouseError(code, "there is no controller")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._awaited[number] = answer
        try:
            self._writer.write(control_channel.encode(message))
            async with asyncio.timeout(timeout_s):
                return await answer
        except (TimeoutError, OSError) as error:
            raise PilothouseError(code, "the controller does not answer") from error
        finally:
            del self._awaited[number]

    def _resolve(self, number: int, answer: object) -> None:
        awaited = self._awaited.get(number)
        if awaited is not None and not awaited.done():
            awaited.set_result(answer)

    def _join(self, writer: asyncio.StreamWriter) -> None:
        joined = WorkerJoined(index=self._worker, pid=os.getpid(), directory=self._callers.version)
        writer.write(control_channel.encode(joined))

    def report(self, replica: ReplicaId, reason: str, silent: bool) -> None:
        """Tell the controller that something is wrong with a replica. Lost if there is no controller."""
        if self._writer is not None:
            message = ReplicaSuspected(replica=replica, reason=reason, silent=silent)
            self._writer.write(control_channel.encode(message))
