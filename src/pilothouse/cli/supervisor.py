"""The supervisor: keeps the fleet's processes running, and ends them in order.

It knows nothing of what they do. Stopping goes by stages, the lowest first: workers drain while the controller and its
replicas still serve them, then the controller stops the replicas. What it cannot end in time, it kills.
"""

import asyncio
import signal
from collections.abc import Callable, Sequence

from pilothouse.cli.child import Child, ChildSpec
from pilothouse.cli.fleet_record import ChildRecord

_POLL_S = 0.02


class Supervisor:
    """Runs the children until `request_stop`. Everything is called from one event loop.

    Args:
        specs: The children, started in this order.
        on_death: Told the name of each child that died, before it is started again.
        on_change: Told of all children after each start and each death.
        on_stop: Called once, when nothing is started any more.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        on_death: Callable[[str], None],
        on_change: Callable[[tuple[ChildRecord, ...]], None],
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_change = on_change
        self._on_death = on_death
        self._on_stop = on_stop
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._children = [Child(spec, on_death=on_death, on_change=self._changed) for spec in specs]

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for."""
        return self._stop.is_set()

    def request_stop(self) -> None:
        """Stop in order; asked again, do not wait any longer."""
        if self._stop.is_set():
            self._hurry.set()
            return
        for child in self._children:
            child.start_no_more()
        self._stop.set()
        self._on_stop()

    def names(self, stage: int) -> list[str]:
        """The children of a stage."""
        return [child.spec.name for child in self._children if child.spec.stop_stage == stage]

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the child of that name, if it runs."""
        for child in self._children:
            if child.spec.name == name:
                child.signal(number)

    async def replace(
        self, stage: int, specs: Sequence[ChildSpec], is_ready: Callable[[ChildRecord], bool], patience_s: float
    ) -> bool:
        """Start `specs` beside the children of a stage, and stop those as soon as all new ones are ready.

        False, and all is as it was, if a new one dies or is not ready within `patience_s`, or if the fleet stops.
        """
        old = [child for child in self._children if child.spec.stop_stage == stage]
        new = [Child(spec, on_death=self._on_death, on_change=self._changed) for spec in specs]
        self._children += new
        for child in new:
            child.start()
        took = await self._all_ready(new, is_ready, patience_s)
        leaving = old if took else new
        await asyncio.gather(*(child.stop(self._hurry) for child in leaving))
        self._children = [child for child in self._children if child not in leaving]
        self._changed()
        return took

    async def _all_ready(
        self, children: list[Child], is_ready: Callable[[ChildRecord], bool], patience_s: float
    ) -> bool:
        give_up = asyncio.get_running_loop().time() + patience_s
        while not all(is_ready(child.record) for child in children):
            died = any(child.record.restarts or child.record.process is None for child in children)
            if died or self.stopping or asyncio.get_running_loop().time() > give_up:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    async def run(self) -> bool:
        """Start everything, keep it running, and return when all of it has ended. True if nothing had to be killed."""
        try:
            for child in self._children:
                child.start()
            await self._stop.wait()
        finally:
            if not self._stop.is_set():
                self.request_stop()
            orderly = await self._stop_all()
        return orderly

    async def _stop_all(self) -> bool:
        orderly = True
        for stage in sorted({child.spec.stop_stage for child in self._children}):
            stops = (child.stop(self._hurry) for child in self._children if child.spec.stop_stage == stage)
            orderly = all(await asyncio.gather(*stops)) and orderly
        return orderly

    def _changed(self) -> None:
        self._on_change(tuple(child.record for child in self._children))
