"""What gives the scheduler's steps their time: an event loop's timer, or nothing at all."""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Protocol

import msgspec

from pilothouse.testing.fake_engine.cache_events import CacheEvent
from pilothouse.testing.fake_engine.metrics import EngineMetrics
from pilothouse.testing.fake_engine.scheduler import Scheduler, Sequence, Step

log = logging.getLogger(__name__)

# A loop's timers fire up to a few milliseconds late. That much is made up for by the next steps, so that steps of
# less than a millisecond keep their mean; a longer delay is a busy machine, and a real engine would be late as well.
_CATCH_UP_S = 0.005


class LatencyModel(msgspec.Struct, frozen=True, kw_only=True):
    """How long a step takes: `base_s + per_sequence_s * decoding sequences + prefill tokens / prefill_rate`.

    The linear decode step is the common first-order model of a memory-bound batch; prefill is bound by compute, so it
    adds in proportion. `scale` multiplies all of it.
    """

    base_s: float
    per_sequence_s: float
    prefill_rate: float
    scale: float = 1.0

    def duration_s(self, step: Step) -> float:
        """The time of one step, in seconds."""
        decode = self.base_s + self.per_sequence_s * step.decodes
        return self.scale * (decode + step.prefill_tokens / self.prefill_rate)


class Engine(Protocol):
    """What runs sequences."""

    scheduler: Scheduler

    def submit(self, sequence: Sequence) -> None:
        """Take a sequence in; its listener hears of its progress."""

    def abort(self, sequence: Sequence, reason: str = "abort") -> bool:
        """End it and free its blocks at once. False when it has ended already."""

    def release(self, sequence: Sequence, hold_at: int | None = None) -> None:
        """Let a held sequence go on, to its end or until `hold_at` tokens."""

    def close(self) -> None:
        """Stop; nothing is computed any more."""


class TimedEngine:
    """Runs the scheduler's steps one after the other, each for as long as the latency model says."""

    def __init__(
        self,
        scheduler: Scheduler,
        latency: LatencyModel,
        metrics: EngineMetrics,
        publish: Callable[[list[CacheEvent]], None] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self._latency = latency
        self._metrics = metrics
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._step: Step | None = None
        self._deadline = 0.0
        self._closed = False

    def submit(self, sequence: Sequence) -> None:
        """Take a sequence in; its listener hears of its progress."""
        sequence.arrived_at = monotonic()
        self.scheduler.add(sequence)
        self._wake()

    def abort(self, sequence: Sequence, reason: str = "abort") -> bool:
        """End it and free its blocks at once. False when it has ended already."""
        ended = self.scheduler.remove(sequence, reason)
        if ended:
            self._metrics.sequence_ended(monotonic() - sequence.arrived_at)
            self._wake()  # blocks may have become free for one that waits
        return ended

    def release(self, sequence: Sequence, hold_at: int | None = None) -> None:
        """Let a held sequence go on, to its end or until `hold_at` tokens."""
        sequence.hold_at = hold_at
        self._wake()

    def close(self) -> None:
        """Stop; nothing is computed any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        if self._step is None and not self._closed:
            self._deadline = self._loop.time()
            self._begin()

    def _begin(self) -> None:
        self._step = self.scheduler.begin_step()
        if self._step is not None:
            self._deadline += self._latency.duration_s(self._step)
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._step_is_over)

    def _step_is_over(self) -> None:
        while self._step is not None and not self._closed:
            now = self._loop.time()
            if self._deadline > now:
                self._arm()
                return
            self._deadline = max(self._deadline, now - _CATCH_UP_S)
            progressed = self.scheduler.finish_step(self._step)
            # The next step is chosen before anyone is told, so that what listeners do cannot start it twice.
            self._step = self.scheduler.begin_step()
            if self._step is not None:
                self._deadline += self._latency.duration_s(self._step)
            self._tell(progressed)

    def _tell(self, progressed: list[Sequence]) -> None:
        if self._publish is not None:
            events = self.scheduler.drain_events()
            if events:
                self._publish(events)
        now = monotonic()  # an event loop's own clock may tick in milliseconds
        for sequence in progressed:
            self._metrics.token(sequence, now)
            if sequence.listener is not None:
                try:
                    sequence.listener.tokens_ready(sequence)
                except Exception:
                    log.exception("a request failed; the engine goes on with the others")


class InstantEngine:
    """Answers at once and whole: no batching, no KV cache, no time. For measuring what is in front of an engine."""

    def __init__(self, scheduler: Scheduler, metrics: EngineMetrics) -> None:
        self.scheduler = scheduler
        self._metrics = metrics

    def submit(self, sequence: Sequence) -> None:
        """The listener hears of all tokens before this returns, unless the sequence is held."""
        sequence.arrived_at = monotonic()
        sequence.cached_tokens = 0
        self.scheduler.running.append(sequence)
        self.scheduler.prompt_tokens += sequence.prompt_tokens
        self._advance(sequence)

    def abort(self, sequence: Sequence, reason: str = "abort") -> bool:
        """End it. False when it has ended already."""
        return self.scheduler.remove(sequence, reason)

    def release(self, sequence: Sequence, hold_at: int | None = None) -> None:
        """Let a held sequence go on, to its end or until `hold_at` tokens."""
        sequence.hold_at = hold_at
        if not sequence.finished:
            self._advance(sequence)

    def close(self) -> None:
        """Nothing runs by itself."""

    def _advance(self, sequence: Sequence) -> None:
        held = sequence.hold_at is not None and sequence.hold_at < max(1, sequence.output_tokens)
        reached = sequence.hold_at if held and sequence.hold_at is not None else sequence.output_tokens
        self.scheduler.generation_tokens += reached - sequence.generated
        sequence.generated = reached
        if not held:
            self.scheduler.remove(sequence, sequence.finish_reason)
            self._metrics.answered_at_once(monotonic() - sequence.arrived_at)
        if sequence.listener is not None and (reached or not held):
            sequence.listener.tokens_ready(sequence)
