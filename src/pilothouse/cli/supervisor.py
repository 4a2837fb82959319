"""The supervisor: keeps the fleet's processes running, and ends them in order.

It knows nothing of what they do. Stopping goes by stages, the lowest first: workers drain while the controller and its
replicas still serve them, then the controller stops the replicas. What it cannot end in time, it kills.
"""

import asyncio
import signal
from collections.abc import Callable, Sequence

from pilothouse.cli.child import Child, ChildSpec
from pilothouse.cli.fleet_record import ChildRecord


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

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the child of that name, if it runs."""
        for child in self._children:
            if child.spec.name == name:
                child.signal(number)

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
