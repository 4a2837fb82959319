"""One request whose prompts are only read, as for embeddings: answered when all of them have been."""

import asyncio
from array import array
from collections.abc import Callable

from pilothouse.testing.fake_engine.engine_loop import Engine
from pilothouse.testing.fake_engine.errors import failure
from pilothouse.testing.fake_engine.http_server import Exchange
from pilothouse.testing.fake_engine.scheduler import Sequence
from pilothouse.testing.fake_engine.scripts import Script


class PromptBatch:
    """Submits the prompts, and responds with `body`, which was known all along."""

    def __init__(
        self,
        exchange: Exchange,
        prompts: "list[array[int]]",
        body: bytes,
        script: Script,
        engine: Engine,
        *,
        ended: Callable[["PromptBatch"], None],
    ) -> None:
        self._exchange = exchange
        self._body = body
        self._script = script
        self._engine = engine
        self._ended = ended
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        hold_at = 0 if script.delay_s else None
        self._sequences = [
            Sequence(prompt, array("I"), listener=self, finish_reason="stop", hold_at=hold_at) for prompt in prompts
        ]

    def start(self) -> None:
        """Send the prompts to the engine."""
        self._exchange.on_disconnect = self._stop
        if self._script.delay_s:
            self._timer = asyncio.get_running_loop().call_later(self._script.delay_s, self._delay_is_over)
        for sequence in self._sequences:
            self._engine.submit(sequence)

    def tokens_ready(self, sequence: Sequence) -> None:
        """One of the prompts has been read."""
        if not self._over and all(sequence.finished for sequence in self._sequences):
            self._stop()
            self._exchange.respond(200, self._body, headers=self._script.headers.items())

    def cut_short(self) -> None:
        """End now, with an error."""
        if not self._over:
            self._stop()
            self._exchange.respond(500, failure().body())

    def _delay_is_over(self) -> None:
        for sequence in self._sequences:
            self._engine.release(sequence)

    def _stop(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        for sequence in self._sequences:
            self._engine.abort(sequence)
        self._ended(self)
