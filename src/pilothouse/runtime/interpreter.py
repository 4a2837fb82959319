"""Gives events to machines one at a time, and has what they answer with carried out in order."""

from collections import deque
from collections.abc import Callable

from pilothouse.model.effects import Effect
from pilothouse.model.events import Event
from pilothouse.policy.machine import Machine
from pilothouse.runtime.journal import Journal

Perform = Callable[[str, Effect], None]
"""Carries out one effect of the machine with this id. It may post events; those wait for their turn."""

OnError = Callable[[str, Event, Exception], None]
"""Hears of a machine that refused an event or whose effect could not be carried out: a defect."""


class UnknownEffect(Exception):  # noqa: N818 - a defect of ours, not an error of the outside world
    """A machine asked for something that nobody has registered a handler for."""


class Interpreter:
    """A set of machines and one queue of events between them.

    All effects of an event are carried out before the next event is handled, also when carrying one out posts events
    at once: a machine is never entered while it is being left. (mitmproxy learned that from eager tasks, #7027.)
    """

    def __init__(self, perform: Perform, *, journal: Journal | None = None, on_error: OnError | None = None) -> None:
        self._perform = perform
        self._journal = journal
        self._on_error = on_error
        self._machines: dict[str, Machine] = {}
        self._queue: deque[tuple[str, Event]] = deque()
        self._running = False

    def add(self, machine_id: str, machine: Machine) -> None:
        """Run this machine from now on. Raises ValueError if there is one of that id."""
        if machine_id in self._machines:
            raise ValueError(f"{machine_id} is running already")
        self._machines[machine_id] = machine

    def remove(self, machine_id: str) -> None:
        """Run it no longer; events that still come for it are dropped."""
        self._machines.pop(machine_id, None)

    def __contains__(self, machine_id: str) -> bool:
        return machine_id in self._machines

    def post(self, machine_id: str, event: Event) -> None:
        """Hand an event to a machine, now or, when called while an event is being handled, after that one.

        Raises what the machine or the carrying out of its effects raises, unless an `on_error` takes it.
        """
        self._queue.append((machine_id, event))
        if self._running:
            return
        self._running = True
        try:
            while self._queue:
                self._step(*self._queue.popleft())
        finally:
            self._running = False

    def _step(self, machine_id: str, event: Event) -> None:
        machine = self._machines.get(machine_id)
        if machine is None:
            return
        try:
            effects = machine.handle(event)
            if self._journal is not None:
                self._journal.record(machine_id, event, effects)
            for effect in effects:
                self._perform(machine_id, effect)
        except Exception as error:
            if self._on_error is None:
                raise
            self._on_error(machine_id, event, error)
