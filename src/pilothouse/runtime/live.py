"""Machines in real time, on asyncio."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from pilothouse.model.effects import Effect, WakeAt
from pilothouse.model.events import Event, Woke
from pilothouse.model.units import SECOND, MonotonicNs
from pilothouse.policy.machine import Machine
from pilothouse.runtime.interpreter import Interpreter, UnknownEffect
from pilothouse.runtime.journal import Journal

_logger = logging.getLogger(__name__)

Answer = Coroutine[Any, Any, Event | None]
Handler = Callable[[str, Any], Answer | None]
"""Carries out an effect of the machine with this id.

A plain function is done when it returns. A coroutine function runs as a task that the runtime owns, and the event it
returns, if any, is handed to the machine. A handler must answer what the effect says it is answered with, whatever
happens: what it raises is a defect, and is logged.
"""


def monotonic_now() -> MonotonicNs:
    """The present, on the clock that never goes back."""
    return MonotonicNs(time.monotonic_ns())


class LiveRuntime:
    """Runs machines on the running loop.

    `handlers` do what machines ask for; timers it keeps itself, unless a handler for them is given.

    Create it, use it and close it on one loop. After `close` no timer and no task of it is left, and events that still
    come are dropped.
    """

    def __init__(self, handlers: Mapping[type[Effect], Handler], *, journal: Journal | None = None) -> None:
        self._handlers: dict[type[Effect], Handler] = {WakeAt: self._set_timer, **handlers}
        self._interpreter = Interpreter(self._perform, journal=journal, on_error=self._report)
        self._loop = asyncio.get_running_loop()
        self._timers: dict[tuple[str, int], asyncio.TimerHandle] = {}
        self._tasks: dict[asyncio.Task[None], tuple[str, type[Effect]]] = {}
        self._closed = False

    def add(self, machine_id: str, machine: Machine) -> None:
        """Run this machine from now on. Raises ValueError if there is one of that id."""
        self._interpreter.add(machine_id, machine)

    def remove(self, machine_id: str) -> None:
        """Run it no longer: its timers and tasks end, and events that still come for it are dropped."""
        self._interpreter.remove(machine_id)
        for key in [key for key in self._timers if key[0] == machine_id]:
            self._timers.pop(key).cancel()
        self._cancel_tasks(lambda owner, _: owner == machine_id)

    def post(self, machine_id: str, event: Event) -> None:
        """Hand an event to a machine, now or, when called by a handler, after the event that is being handled."""
        if not self._closed:
            self._interpreter.post(machine_id, event)

    def cancel(self, machine_id: str, kind: type[Effect]) -> None:
        """End the handlers of this kind of effect that are under way for this machine; they answer nothing."""
        self._cancel_tasks(lambda owner, effect: owner == machine_id and effect is kind)

    async def close(self) -> None:
        """End all timers and tasks, and wait until they have ended."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _perform(self, machine_id: str, effect: Effect) -> None:
        handler = self._handlers.get(type(effect))
        if handler is None:
            raise UnknownEffect(f"{machine_id} asks for {type(effect).__name__}, which has no handler")
        answer = handler(machine_id, effect)
        if answer is not None:
            task = self._loop.create_task(self._answer(machine_id, effect, answer))
            self._tasks[task] = (machine_id, type(effect))
            task.add_done_callback(self._tasks.pop)
            # A task that is cancelled before its first step never starts the handler's coroutine.
            task.add_done_callback(lambda _: answer.close())

    def _set_timer(self, machine_id: str, effect: WakeAt) -> None:
        delay = max(0, effect.at - monotonic_now()) / SECOND
        self._timers[machine_id, effect.token] = self._loop.call_later(delay, self._wake, machine_id, effect)

    def _wake(self, machine_id: str, effect: WakeAt) -> None:
        self._timers.pop((machine_id, effect.token), None)
        # A loop's clock may be coarser than ours, but to the machine the moment it asked for has come.
        at = max(effect.at, monotonic_now())
        self.post(machine_id, Woke(at=at, token=effect.token))

    async def _answer(self, machine_id: str, effect: Effect, answer: Answer) -> None:
        try:
            event = await answer
        except Exception:
            _logger.exception("the handler of %s failed", type(effect).__name__, extra={"machine": machine_id})
            return
        if event is not None:
            self.post(machine_id, event)

    def _cancel_tasks(self, matches: Callable[[str, type[Effect]], bool]) -> None:
        # A handler that posts may cause the cancelling of its own kind: its task is not to be cut short by itself.
        current = asyncio.current_task(self._loop)
        for task, (owner, kind) in list(self._tasks.items()):
            if task is not current and matches(owner, kind):
                task.cancel()

    def _report(self, machine_id: str, event: Event, error: Exception) -> None:
        _logger.error(
            "%s could not handle %s: %s",
            machine_id,
            type(event).__name__,
            error,
            exc_info=error,
            extra={"machine": machine_id},
        )
