"""Spans as a collector gets them."""

import builtins
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from data_plane import ENGINE_KEY, MODEL, RunningPlane, chat, data_plane, request, snapshot
from pilothouse.model.errors import PilothouseError
from pilothouse.policy.draw import Draws
from pilothouse.telemetry.traces import Traces
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script

CHAT = "/v1/chat/completions"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


class Collector:
    """Takes OTLP over HTTP on loopback."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    raise AssertionError("not asked to compress")
                assert self.path == "/v1/traces"
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def spans(self) -> list[Any]:
        return [
            span
            for each in self.requests
            for resource in each.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with contextlib.closing(Collector()) as found:
        yield found


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


@contextlib.asynccontextmanager
async def serving(
    collector: Collector, tmp_path: Path, sample: float
) -> AsyncIterator[tuple[FakeEngine, RunningPlane]]:
    traces = Traces(collector.url, sample, draws=Draws(1), fleet="tests", worker=2, version="9.9")
    options = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01)
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(FakeEngine(options))
        yield engine, await stack.enter_async_context(data_plane(snapshot([engine.port]), tmp_path, traces=traces))
    traces.close()


@pytest.mark.asyncio
async def test_a_request_is_a_span_below_the_clients_and_above_the_engines(
    collector: Collector, tmp_path: Path
) -> None:
    async with serving(collector, tmp_path, sample=0.0) as (engine, plane):
        headers = {"traceparent": SAMPLED, "tracestate": "a=b"}
        answer = await plane.ask(CHAT, chat(max_tokens=7, stream=True), headers=headers)
        sent = engine.requests[-1]
    (span,) = collector.spans()
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert sent.header("traceparent") == f"00-{TRACE}-{span.span_id.hex()}-01"
    assert sent.header("tracestate") == "a=b"
    assert (span.name, span.kind) == (f"chat {MODEL}", 2)
    assert span.start_time_unix_nano < span.events[0].time_unix_nano < span.end_time_unix_nano
    assert [each.name for each in span.events] == ["pilothouse.first_token"]
    found = attributes(span)
    assert found.pop("pilothouse.overhead_seconds") > 0
    assert found.pop("gen_ai.usage.input_tokens") > 0
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "fake",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.max_tokens": 7,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": found["gen_ai.usage.cache_read.input_tokens"],
        "http.request.method": "POST",
        "http.route": CHAT,
        "http.response.status_code": 200,
        "pilothouse.request.id": answer.headers["x-pilothouse-request-id"],
        "pilothouse.tenant": "tests",
        "pilothouse.deployment": "fake",
        "pilothouse.replica": "r0",
        "pilothouse.attempts": 1,
    }
    resource = {
        each.key: each.value.string_value for each in collector.requests[0].resource_spans[0].resource.attributes
    }
    assert resource["service.name"] == "pilothouse"
    assert resource["service.instance.id"] == "worker-2"


@pytest.mark.asyncio
async def test_who_is_traced(collector: Collector, tmp_path: Path) -> None:
    async with serving(collector, tmp_path, sample=1.0) as (engine, plane):
        await plane.ask(CHAT, chat(max_tokens=1), headers={"traceparent": NOT_SAMPLED})
        assert engine.requests[-1].header("traceparent") == NOT_SAMPLED, "a client that does not trace is left alone"
        await plane.ask(CHAT, chat(max_tokens=1))
        await plane.ask(CHAT, chat(max_tokens=1), headers={"traceparent": "broken"})
        await plane.ask(CHAT, b"{")
    spans = collector.spans()
    assert [span.parent_span_id for span in spans] == [b"", b""], "traces of their own"
    assert len({span.trace_id for span in spans}) == 2


@pytest.mark.asyncio
async def test_how_a_request_failed(collector: Collector, tmp_path: Path) -> None:
    async with serving(collector, tmp_path, sample=1.0) as (engine, plane):
        engine.script(Script(close_after=0))
        await plane.ask(CHAT, chat())
        engine.script(Script(error_after=0, error={"error": {"message": "no", "code": 507}}))
        await plane.ask(CHAT, chat(stream=True))
        engine.script(Script(stall_after=2))
        wire = await plane.send(request(CHAT, chat(stream=True)))
        await wire.head()
        wire.abort()
    found = [
        (attributes(span)["http.response.status_code"], attributes(span)["error.type"], span.status.code)
        for span in collector.spans()
    ]
    assert found == [(502, "replica_lost", 2), (507, "engine_error", 2), (499, "client_disconnected", 0)]


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError("No module named 'opentelemetry'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PilothouseError) as caught:
        Traces("http://127.0.0.1:1", 1.0, draws=Draws(1), fleet="f", worker=0, version="1")
    assert caught.value.code == "tracing_not_installed"
    assert "pilothouse[otel]" in caught.value.hint
