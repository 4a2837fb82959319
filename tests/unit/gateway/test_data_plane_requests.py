"""What a client gets from the data plane for requests that need no engine, or a well-behaved one."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from data_plane import ENGINE_KEY, KEY, MODEL, RunningPlane, chat, data_plane, request, settled, snapshot
from pilothouse.model.requests import Route
from pilothouse.model.spec import GatewayLimits
from pilothouse.telemetry import catalogue
from pilothouse.testing.fake_engine import EngineOptions, FakeEngine, Script

CHAT = "/v1/chat/completions"
SMALL = GatewayLimits(max_head_bytes=2048, max_header_count=20, max_body_bytes=4096)
ENGINE = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, zero_latency=True)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("method", "path", "key", "status", "code"),
    [
        ("POST", CHAT, None, 401, "missing_api_key"),
        ("POST", CHAT, "wrong", 401, "invalid_api_key"),
        ("POST", CHAT, "x" * 600, 401, "invalid_api_key"),
        ("GET", "/v1/models", None, 401, "missing_api_key"),
        ("GET", "/v1/nothing", KEY, 404, "unknown_url"),
        ("GET", "/", None, 404, "unknown_url"),
        ("GET", CHAT, KEY, 405, "method_not_allowed"),
        ("POST", "/v1/models", KEY, 405, "method_not_allowed"),
        ("GET", "/v1/models/none", KEY, 404, "model_not_found"),
    ],
)
async def test_refusals_by_the_head(
    method: str, path: str, key: str | None, status: int, code: str, tmp_path: Path
) -> None:
    async with data_plane(snapshot([1]), tmp_path) as plane:
        answer = await plane.ask(path, method=method, key=key)
        assert (answer.status, answer.code) == (status, code)
        assert plane.ended(code) == 1
        assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
        if status == 405:
            assert answer.headers["allow"] == ("POST" if path == CHAT else "GET, HEAD")


@pytest.mark.asyncio
@pytest.mark.parametrize("header", ["x-api-key: ", "authorization: bearer ", "AUTHORIZATION: BEARER  "])
async def test_keys_come_in_two_headers(header: str, tmp_path: Path) -> None:
    async with data_plane(snapshot([1]), tmp_path) as plane:
        name, value = (header + KEY).split(": ", 1)
        answer = await plane.ask("/v1/models", method="GET", key=None, headers={name: value})
        assert answer.status == 200
        assert [model["id"] for model in answer.json()["data"]] == [MODEL]


@pytest.mark.asyncio
async def test_a_revoked_key_ends_at_once_also_on_a_connection_that_used_it(tmp_path: Path) -> None:
    async with data_plane(snapshot([1]), tmp_path) as plane:
        wire = await plane.send(request("/v1/models", method="GET"))
        assert (await wire.answer()).status == 200
        plane.plane.callers.revoke(["key_1"])
        wire.writer.write(request("/v1/models", method="GET"))
        assert (await wire.answer()).code == "invalid_api_key"
        wire.close()


@pytest.mark.asyncio
async def test_health_needs_no_key(tmp_path: Path) -> None:
    async with data_plane(snapshot([1, 2]), tmp_path) as plane:
        assert (await plane.ask("/livez", method="GET", key=None)).body == b"ok\n"
        ready = await plane.ask("/readyz?verbose", method="GET", key=None)
        assert ready.status == 200
        assert b"[+]model fake-model ok: 2 of 2 replicas" in ready.body
        plane.plane.apply(snapshot([], version=2))
        broken = await plane.ask("/readyz", method="GET", key=None)
        assert broken.status == 503
        assert b"[-]model fake-model failed: 0 of 0 replicas" in broken.body
        assert (await plane.ask("/livez", method="GET", key=None)).status == 200
        assert (await plane.ask(CHAT, chat())).code == "no_ready_replica"


@pytest.mark.asyncio
async def test_head_has_the_length_and_no_body(tmp_path: Path) -> None:
    async with data_plane(snapshot([1]), tmp_path) as plane:
        get = await plane.ask("/v1/models", method="GET")
        wire = await plane.send(request("/v1/models", method="HEAD") + request("/livez", method="GET"))
        head = await wire.answer(head_only=True)
        assert head.headers["content-length"] == str(len(get.body))
        assert (await wire.answer()).body == b"ok\n"
        wire.close()


@pytest.mark.asyncio
async def test_names_of_models_may_have_slashes(tmp_path: Path) -> None:
    async with data_plane(snapshot([1]), tmp_path) as plane:
        for path in ("/v1/models/org/name", "/v1/models/org%2Fname"):
            assert "`org/name`" in (await plane.ask(path, method="GET")).json()["error"]["message"]
        assert (await plane.ask(f"/v1/models/{MODEL}", method="GET")).json()["owned_by"] == "pilothouse"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"", 400, "invalid_json", None),
        (b"{", 400, "invalid_json", None),
        (b"[]", 400, "invalid_json", None),
        (b"[" * 3000, 400, "invalid_json", None),
        (b'{"model": "\xff"}', 400, "invalid_json", None),
        (b'{"model": "m", "model": "m"}', 400, "duplicate_key", None),
        (b"{}", 400, "missing_required_parameter", "model"),
        (b'{"model": 1}', 400, "invalid_type", "model"),
        (b'{"model": ""}', 400, "invalid_value", "model"),
        (b'{"model": "m", "stream": 1}', 400, "invalid_type", "stream"),
        (b'{"model": "m", "max_tokens": "1"}', 400, "invalid_type", "max_tokens"),
        (b'{"model": "m", "stream": true, "stream_options": 1}', 400, "invalid_type", "stream_options"),
        (b'{"model": "none"}', 404, "model_not_found", "model"),
        (b"x" * 5000, 413, "body_too_large", None),
    ],
)
async def test_bodies_that_are_refused(body: bytes, status: int, code: str, param: str | None, tmp_path: Path) -> None:
    async with data_plane(snapshot([1]), tmp_path, SMALL) as plane:
        answer = await plane.ask(CHAT, body)
        assert (answer.status, answer.code, answer.json()["error"]["param"]) == (status, code, param)
        assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.asyncio
async def test_errors_of_messages_are_in_its_dialect(tmp_path: Path) -> None:
    async with data_plane(snapshot([1]), tmp_path) as plane:
        answer = await plane.ask("/v1/messages", {"model": "none"})
        assert answer.status == 404
        error = answer.json()
        assert error["type"] == "error"
        assert error["error"]["type"] == "not_found_error"
        assert error["request_id"] == answer.headers["x-pilothouse-request-id"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"GET /livez HTTP/1.1\r\n\r\n", 400, "malformed_http"),
        (b"GET /livez HTTP/1.1\nHost: a\n\n", 400, "malformed_http"),
        (b"NONSENSE\r\n\r\n", 400, "malformed_http"),
        (b"\x16\x03\x01\x00", 400, "malformed_http"),
        (b"GET /livez HTTP/2.0\r\nHost: a\r\n\r\n", 505, "http_version_not_supported"),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 4000, 431, "head_too_large"),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 30 + b"\r\n", 431, "head_too_large"),
        (b"POST /v1/models HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n", 413, "body_too_large"),
        (b"POST /livez HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n", 417, "expectation_failed"),
        (
            b"POST /livez HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            501,
            "unsupported_transfer_encoding",
        ),
    ],
)
async def test_broken_requests_are_answered_and_closed(raw: bytes, status: int, code: str, tmp_path: Path) -> None:
    async with data_plane(snapshot([1]), tmp_path, SMALL) as plane:
        wire = await plane.send(raw)
        answer = await wire.answer()
        assert (answer.status, answer.code) == (status, code)
        assert answer.headers["connection"] == "close"
        assert await wire.reader.read() == b""
        wire.close()


@pytest.mark.asyncio
async def test_a_chunked_body_that_grows_too_large_is_refused(tmp_path: Path) -> None:
    async with data_plane(snapshot([1]), tmp_path, SMALL) as plane:
        head = request(CHAT, headers={"Transfer-Encoding": "chunked"}).replace(b"Content-Length: 0\r\n", b"")
        wire = await plane.send(head + b"fff\r\n" + b"x" * 0xFFF + b"\r\nfff\r\nxx")
        answer = await wire.answer()
        assert answer.code == "body_too_large"
        wire.close()


@pytest.mark.asyncio
async def test_expectations_are_met_or_refused_before_the_body(tmp_path: Path) -> None:
    async with FakeEngine(ENGINE) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        whole = request(CHAT, chat(), headers={"Expect": "100-continue"})
        head, body = whole.split(b"\r\n\r\n", 1)
        wire = await plane.send(head + b"\r\n\r\n")
        assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.writer.write(body)
        assert (await wire.answer()).status == 200
        wire.close()
        refused = await plane.send(head.replace(KEY.encode(), b"no") + b"\r\n\r\n")
        assert (await refused.answer()).code == "invalid_api_key"
        refused.close()


@pytest.mark.asyncio
async def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    async with FakeEngine(ENGINE) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        names = [f"req-{number}" for number in range(6)]
        raw = b"".join(request(CHAT, chat(max_tokens=3), headers={"X-Request-Id": name}) for name in names[:5])
        wire = await plane.send(raw + request("/livez", method="GET", headers={"X-Request-Id": names[5]}))
        assert [(await wire.answer()).headers["x-request-id"] for _ in names] == names
        wire.close()
        assert plane.count(catalogue.REQUESTS, route=CHAT, reason="ok") == 5


@pytest.mark.asyncio
async def test_a_client_that_has_pipelined_is_read_from_again(tmp_path: Path) -> None:
    """While its last request is under way, so that its leaving is noticed, and after it."""
    async with FakeEngine(ENGINE) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        wire = await plane.send(request(CHAT, chat(max_tokens=1)) * 3)
        assert [(await wire.answer()).status for _ in range(3)] == [200] * 3
        wire.writer.write(request("/livez", method="GET"))
        assert (await wire.answer()).status == 200
        engine.script(Script())
        engine.script(Script(stall_after=0))
        leaving = await plane.send(request(CHAT, chat(max_tokens=1)) * 2)
        assert (await leaving.answer()).status == 200
        assert plane.in_flight()[0] == 1
        leaving.abort()
        await settled(plane)


@pytest.mark.asyncio
async def test_more_pipelined_requests_than_a_client_has_use_for_are_refused(tmp_path: Path) -> None:
    async with data_plane(snapshot([1]), tmp_path) as plane:
        wire = await plane.send(request("/livez", method="GET") * 40)
        answers = [(await wire.answer()).status for _ in range(33)]
        assert answers == [200] * 32 + [400]
        wire.close()


@pytest.mark.asyncio
async def test_http_1_0_gets_no_chunks_and_a_close(tmp_path: Path) -> None:
    async with FakeEngine(ENGINE) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        raw = request(CHAT, chat(stream=True, max_tokens=4)).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        wire = await plane.send(raw)
        answer = await wire.answer()
        assert "transfer-encoding" not in answer.headers
        assert answer.headers["connection"] == "close"
        assert answer.body.endswith(b"data: [DONE]\n\n")
        wire.close()
        kept = await plane.send(b"GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2)
        assert (await kept.answer()).headers["connection"] == "keep-alive"
        assert (await kept.answer()).status == 200
        kept.close()


@pytest.mark.asyncio
async def test_a_connection_is_kept_unless_the_client_says_close(tmp_path: Path) -> None:
    async with FakeEngine(ENGINE) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        wire = await plane.send(request(CHAT, chat()))
        assert (await wire.answer()).status == 200
        wire.writer.write(request(CHAT, chat(), headers={"Connection": "close"}))
        assert (await wire.answer()).headers["connection"] == "close"
        assert await wire.reader.read() == b""
        wire.close()
        assert plane.count(catalogue.UPSTREAM_CONNECTIONS) == 1


async def _sent_to_engine(plane: RunningPlane, engine: FakeEngine, headers: dict[str, str]) -> dict[str, str]:
    await plane.ask(CHAT, chat(), headers=headers)
    return dict(engine.requests[-1].headers)


@pytest.mark.asyncio
async def test_what_an_engine_is_told(tmp_path: Path) -> None:
    async with FakeEngine(ENGINE) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        seen = await _sent_to_engine(
            plane,
            engine,
            {
                "X-Request-Id": "mine",
                "X-Vllm-Priority": "-1",
                "X-Api-Key": "other",
                "Cookie": "a=b",
                "Accept-Encoding": "gzip",
                "Connection": "keep-alive, X-Hop",
                "X-Hop": "1",
                "Anthropic-Beta": "tools",
                "Traceparent": trace,
                "Tracestate": "a=1",
            },
        )
        assert seen["authorization"] == f"Bearer {ENGINE_KEY}"
        assert seen["x-request-id"].startswith("req_")
        assert len(seen["x-request-id"]) == 28
        assert seen["anthropic-beta"] == "tools"
        assert (seen["traceparent"], seen["tracestate"]) == (trace, "a=1")
        hidden = {"x-vllm-priority", "x-api-key", "cookie", "accept-encoding", "x-hop", "connection"}
        assert not hidden & seen.keys()
        assert seen["host"] == f"127.0.0.1:{engine.port}"


@pytest.mark.asyncio
@pytest.mark.parametrize("trace", ["nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01"])
async def test_a_broken_trace_is_not_passed_on(trace: str, tmp_path: Path) -> None:
    async with FakeEngine(ENGINE) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        seen = await _sent_to_engine(plane, engine, {"Traceparent": trace, "Tracestate": "a=1"})
        assert not {"traceparent", "tracestate"} & seen.keys()


@pytest.mark.asyncio
async def test_headers_may_change_on_a_kept_connection(tmp_path: Path) -> None:
    """The head of one request must never be taken for that of the next."""
    async with FakeEngine(ENGINE) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        wire = await plane.send(b"")
        for value in ("a", "b", "b", "c"):
            for text in ("x", "longer"):
                body = chat(messages=[{"role": "user", "content": text}])
                wire.writer.write(request(CHAT, body, headers={"X-Custom": value}))
                assert (await wire.answer()).status == 200
                assert engine.requests[-1].header("x-custom") == value
                assert engine.requests[-1].json()["messages"][0]["content"] == text
        wire.writer.write(request(CHAT, chat(), key="wrong!", headers={"X-Custom": "c"}))
        assert (await wire.answer()).status == 401
        wire.close()


@pytest.mark.asyncio
async def test_the_body_is_the_clients_own_unless_a_field_must_change(tmp_path: Path) -> None:
    async with FakeEngine(ENGINE) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        own = b'{ "model" : "fake-model", "messages": [{"role":"user","content":"hi"}], "unknown": {"a": [1,  2]} }'
        await plane.ask(CHAT, own)
        assert engine.requests[-1].body == own
        await plane.ask(CHAT, chat(priority=-5, cache_salt="x", n=1))
        assert engine.requests[-1].json() == chat(n=1)


@pytest.mark.asyncio
async def test_a_deployment_may_have_another_name_for_the_model(tmp_path: Path) -> None:
    options = EngineOptions(served_model_names=("other",), api_key=ENGINE_KEY, zero_latency=True)
    async with FakeEngine(options) as engine, AsyncExitStack() as stack:
        fleet = snapshot([engine.port], served_model="other")
        plane = await stack.enter_async_context(data_plane(fleet, tmp_path))
        assert (await plane.ask(CHAT, chat())).status == 200
        assert engine.requests[-1].json()["model"] == "other"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("sent", "echoed"), [("abc-123", True), ("x" * 128, True), ("x" * 129, False), ("with space", False), (None, False)]
)
async def test_request_ids(sent: str | None, echoed: bool, tmp_path: Path) -> None:
    async with FakeEngine(ENGINE) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        answer = await plane.ask(CHAT, chat(), headers={} if sent is None else {"X-Request-Id": sent})
        own = answer.headers["x-pilothouse-request-id"]
        assert answer.headers["x-request-id"] == (sent if echoed else own)
        assert float(answer.headers["x-pilothouse-overhead-ms"]) >= 0
        assert "server" not in answer.headers


@pytest.mark.asyncio
async def test_routes_that_a_deployment_does_not_speak(tmp_path: Path) -> None:
    fleet = snapshot([1], routes=(Route.CHAT_COMPLETIONS,))
    async with data_plane(fleet, tmp_path) as plane:
        answer = await plane.ask("/v1/embeddings", {"model": MODEL, "input": "a"})
        assert answer.code == "route_not_supported"
        assert "/v1/chat/completions" in answer.json()["error"]["message"]


@pytest.mark.asyncio
async def test_a_draining_plane_says_so_and_closes(tmp_path: Path) -> None:
    async with FakeEngine(ENGINE) as engine, data_plane(snapshot([engine.port]), tmp_path) as plane:
        plane.plane.draining = True
        wire = await plane.send(request(CHAT, chat()))
        assert (await wire.answer()).headers["connection"] == "close"
        assert await wire.reader.read() == b""
        wire.close()
        assert (await plane.ask("/readyz", method="GET", key=None)).status == 503


@pytest.mark.asyncio
async def test_load_spreads_over_replicas(tmp_path: Path) -> None:
    options = EngineOptions(served_model_names=(MODEL,), api_key=ENGINE_KEY, time_scale=0.01)
    async with FakeEngine(options) as one, FakeEngine(options) as two, AsyncExitStack() as stack:
        plane = await stack.enter_async_context(data_plane(snapshot([one.port, two.port]), tmp_path))
        answers = await asyncio.gather(*(plane.ask(CHAT, chat(max_tokens=50)) for _ in range(20)))
        assert [answer.status for answer in answers] == [200] * 20
        counts = one.state().requests_total, two.state().requests_total
        assert sum(counts) == 20
        assert min(counts) >= 8, "twenty alike at once are ten and ten, but for those that ended early"
