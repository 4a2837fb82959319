"""The fake engine as an object: `async with FakeEngine(...) as engine`."""

import asyncio
from types import TracebackType
from typing import Self

from pilothouse.testing.fake_engine.application import Application
from pilothouse.testing.fake_engine.engine_loop import Engine, InstantEngine, LatencyModel, TimedEngine
from pilothouse.testing.fake_engine.http_server import Connections, HttpConnection
from pilothouse.testing.fake_engine.kv_events import KvEventPublisher
from pilothouse.testing.fake_engine.metrics import EngineMetrics
from pilothouse.testing.fake_engine.options import EngineOptions
from pilothouse.testing.fake_engine.scheduler import Scheduler, SchedulerLimits
from pilothouse.testing.fake_engine.scripts import Script, ScriptOrder
from pilothouse.testing.fake_engine.state import EngineState, SeenRequest

_BACKLOG = 1024
_FLUSH_S = 1.0  # for the last bytes of responses that were ended


class FakeEngine:
    """An OpenAI-compatible inference server without a model, on the running event loop.

        async with FakeEngine(EngineOptions(step_base_ms=1)) as engine:
            engine.script(Script(status=503))
            ...                                   # call engine.url + "/v1/chat/completions"
            assert engine.requests[0].header("authorization") is None

    Raises OSError when the address cannot be had, and KvEventsUnavailableError when KV events need pyzmq.
    """

    def __init__(self, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self._connections = Connections()
        self._server: asyncio.Server | None = None
        self._publisher: KvEventPublisher | None = None
        self._engine: Engine | None = None
        self._application: Application | None = None
        self._port = self.options.port

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def url(self) -> str:
        """`http://host:port`, without a path."""
        host = self.options.host
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    @property
    def requests(self) -> tuple[SeenRequest, ...]:
        """The last `record_requests` requests, but those to /fake."""
        return tuple(self._running.seen)

    def script(self, *scripts: Script, times: int = 1, path: str | None = None) -> None:
        """Behave like this in the next requests, one script after the other, each `times` times.

        Without `path` they are for routes that generate.
        """
        for script in scripts:
            self._running.scripts.add(ScriptOrder(script=script, times=times, path=path))

    def state(self) -> EngineState:
        """What it is doing now."""
        return self._running.state()

    def reset(self) -> None:
        """End what runs, forget scripts, recorded requests and the prefix cache."""
        self._running.reset()

    async def start(self) -> None:
        """Listen, after the start-up delay; until then connections are refused, as by an engine that loads."""
        options = self.options
        await asyncio.sleep(options.startup_delay_s)
        metrics = EngineMetrics(options.served_model_names[0])
        limits = SchedulerLimits(
            blocks=options.kv_blocks,
            block_size=options.block_size,
            max_sequences=options.max_num_seqs,
            max_batched_tokens=options.max_num_batched_tokens,
            prefix_caching=options.enable_prefix_caching,
        )
        if options.kv_events_endpoint is not None:
            self._publisher = KvEventPublisher(
                options.kv_events_endpoint,
                options.kv_events_replay_endpoint,
                topic=options.kv_events_topic,
                as_arrays=options.kv_events_format == "array",
            )
        self._engine = self._build_engine(Scheduler(limits), metrics)
        application = Application(options, self._engine, metrics)
        if self._publisher is not None:
            application.kv_endpoints = (self._publisher.endpoint, self._publisher.replay_endpoint)
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: HttpConnection(self._connections, application.handle, options.keep_alive_timeout_s),
                options.host,
                options.port,
                backlog=_BACKLOG,
            )
        except OSError:
            self._close_engine()
            raise
        self._application = application
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self, timeout_s: float | None = None) -> None:
        """Take nothing new, give requests in work that long (default: the options' shutdown timeout), then end them.

        Requests that are ended get what there is, with the finish reason `abort`, as from vLLM.
        """
        if self._server is None or self._application is None:
            return
        self._server.close()
        self._server = None
        for connection in self._connections:
            connection.drain()
        await _within(self.options.shutdown_timeout_s if timeout_s is None else timeout_s, self._application.quiet)
        for turn in tuple(self._application.turns):
            turn.cut_short()
        for connection in self._connections:
            connection.close()
        await _within(_FLUSH_S, self._connections.none_left)
        for connection in self._connections:
            connection.close(reset=True)
        self._close_engine()

    def _build_engine(self, scheduler: Scheduler, metrics: EngineMetrics) -> Engine:
        options = self.options
        if options.zero_latency:
            return InstantEngine(scheduler, metrics)
        latency = LatencyModel(
            base_s=options.step_base_ms / 1000,
            per_sequence_s=options.step_per_sequence_ms / 1000,
            prefill_rate=options.prefill_tokens_per_s,
            scale=options.time_scale,
        )
        publish = None if self._publisher is None else self._publisher.publish
        return TimedEngine(scheduler, latency, metrics, publish)

    def _close_engine(self) -> None:
        if self._engine is not None:
            self._engine.close()
        if self._publisher is not None:
            self._publisher.close()

    @property
    def _running(self) -> Application:
        if self._application is None:
            raise RuntimeError("the fake engine has not been started")
        return self._application


async def _within(timeout_s: float, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
