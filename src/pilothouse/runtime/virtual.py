"""Machines in virtual time: a heap of events, the same run every time, no waiting."""

import heapq
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from pilothouse.model.effects import Effect, WakeAt
from pilothouse.model.events import Event, Woke
from pilothouse.model.units import MonotonicNs
from pilothouse.policy.machine import Machine
from pilothouse.runtime.interpreter import Interpreter, UnknownEffect
from pilothouse.runtime.journal import Journal

Handler = Callable[[str, Any], None]
"""Carries out an effect of the machine with this id, by scheduling the events that answer it."""


class VirtualRuntime:
    """Runs machines as fast as it can; time is the time of the event that is being handled.

    `handlers` do what machines ask for; timers it keeps itself, unless a handler for them is given.
    Events of the same moment are handled in the order in which they were scheduled. What a machine or a handler
    raises is raised by `run`.
    """

    def __init__(self, handlers: Mapping[type[Effect], Handler], *, journal: Journal | None = None) -> None:
        self._handlers: dict[type[Effect], Handler] = {WakeAt: self._set_timer, **handlers}
        self._interpreter = Interpreter(self._perform, journal=journal)
        self._heap: list[tuple[MonotonicNs, int, str, Event]] = []
        self._order = itertools.count()
        self._now = MonotonicNs(0)

    @property
    def now(self) -> MonotonicNs:
        """The present."""
        return self._now

    def add(self, machine_id: str, machine: Machine) -> None:
        """Run this machine from now on. Raises ValueError if there is one of that id."""
        self._interpreter.add(machine_id, machine)

    def remove(self, machine_id: str) -> None:
        """Run it no longer; events that still come for it are dropped."""
        self._interpreter.remove(machine_id)

    def schedule(self, machine_id: str, event: Event) -> None:
        """Have the event happen at its `at`. Raises ValueError for the past."""
        if event.at < self._now:
            raise ValueError(f"{type(event).__name__} at {event.at} is in the past: it is {self._now}")
        heapq.heappush(self._heap, (event.at, next(self._order), machine_id, event))

    def run(self, until: MonotonicNs) -> int:
        """Let everything happen that is due up to and at `until`; it then is `until`. The number of events."""
        handled = 0
        while self._heap and self._heap[0][0] <= until:
            self._now, _, machine_id, event = heapq.heappop(self._heap)
            self._interpreter.post(machine_id, event)
            handled += 1
        self._now = max(self._now, until)
        return handled

    def _perform(self, machine_id: str, effect: Effect) -> None:
        handler = self._handlers.get(type(effect))
        if handler is None:
            raise UnknownEffect(f"{machine_id} asks for {type(effect).__name__}, which has no handler")
        handler(machine_id, effect)

    def _set_timer(self, machine_id: str, effect: WakeAt) -> None:
        self.schedule(machine_id, Woke(at=effect.at, token=effect.token))
