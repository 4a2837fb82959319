"""The admin API: who gets in, what each route answers, and how it refuses."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import jsonschema
import msgspec
import pytest
import pytest_asyncio
from starlette.routing import Route

from pilothouse.console.admin import build_app
from pilothouse.console.server import AdminServer
from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import ReplicaState
from pilothouse.model.ids import DeploymentName, FleetName, ModelName, ReplicaId
from pilothouse.model.status import FleetStatus, ReloadResult, ReplicaStatus, WorkerStatus
from pilothouse.telemetry.board import Boards
from pilothouse.telemetry.exposition import Exposition, expose

TOKEN = "an-admin-token-0123456789"
BEARER = {"authorization": f"Bearer {TOKEN}"}


def replica(name: str, model: str, state: ReplicaState) -> ReplicaStatus:
    return ReplicaStatus(
        id=ReplicaId(name), model=ModelName(model), deployment=DeploymentName("d"), engine="fake", state=state
    )


class ScriptedFleet:
    """Operations whose answers a test sets."""

    def __init__(self) -> None:
        self.now = FleetStatus(
            fleet=FleetName("default"),
            version="1.2.3",
            gateway="http://127.0.0.1:8080",
            admin="http://127.0.0.1:8081",
            fleet_file="fleet.yaml",
            ready=True,
            snapshot_version=7,
            workers=(WorkerStatus(index=0, pid=10, snapshot_version=7),),
            replicas=(replica("d-0", "m", ReplicaState.READY),),
        )
        self.changes: tuple[str, ...] = ("models.m.replicas: 1 -> 2",)
        self.failure: Exception | None = None
        self.reloads = 0

    def set_replicas(self, *replicas: ReplicaStatus) -> None:
        self.now = msgspec.structs.replace(self.now, replicas=replicas)

    def status(self) -> FleetStatus:
        if self.failure is not None:
            raise self.failure
        return self.now

    async def reload(self) -> ReloadResult:
        self.reloads += 1
        if self.failure is not None:
            raise self.failure
        return ReloadResult(changes=self.changes)

    def metrics_text(self, accept: str) -> Exposition:
        return expose(Boards(boards=(), samples=()), self.now, accept=accept)


@pytest.fixture
def fleet() -> ScriptedFleet:
    return ScriptedFleet()


@pytest_asyncio.fixture
async def client(fleet: ScriptedFleet) -> AsyncIterator[httpx2.AsyncClient]:
    """Calls the application as `http://127.0.0.1:8081`, without a token."""
    app = build_app(fleet, token=TOKEN, allowed_hosts=("localhost", "fleet.internal"))
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=True)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081") as client:
        yield client


def assert_error(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """An error of the table in the API's own form; gives back its inside."""
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"code", "message", "hint", "docs"}
    assert all(error.values())
    assert error["code"] == code
    assert error["docs"] == f"docs/reference/errors.md#{code}"
    return error


# Who gets in


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer ph_a_data_plane_key_0123"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": "Bearer \u00fcml\u00e4ut".encode("latin-1")},
        {"x-api-key": TOKEN},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/fleet"), ("POST", "/v1/fleet/reload"), ("GET", "/openapi.json"), ("GET", "/nowhere"), ("GET", "/")],
)
async def test_without_the_token_nothing_is_told_or_done(
    client: httpx2.AsyncClient, fleet: ScriptedFleet, headers: dict[str, str], method: str, path: str
) -> None:
    response = await client.request(method, path, headers=headers)

    assert_error(response, 401, "admin_token_required")
    assert response.headers["www-authenticate"] == "Bearer"
    assert fleet.reloads == 0
    assert TOKEN not in response.text


@pytest.mark.asyncio
async def test_two_authorization_headers_are_none(client: httpx2.AsyncClient) -> None:
    both = [("authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {TOKEN}")]
    assert_error(await client.get("/v1/fleet", headers=both), 401, "admin_token_required")


@pytest.mark.asyncio
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_with_the_token_it_answers(client: httpx2.AsyncClient, scheme: str) -> None:
    response = await client.get("/v1/fleet", headers={"authorization": f"{scheme} {TOKEN}"})
    assert response.status_code == 200


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
async def test_health_and_metrics_need_no_token(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 200


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/livez/", "//livez", "/livez/../v1/fleet", "/metrics/x"])
async def test_only_those_very_paths_are_open(client: httpx2.AsyncClient, path: str) -> None:
    request = client.build_request("GET", "http://127.0.0.1:8081")
    request.url = request.url.copy_with(raw_path=path.encode())
    assert_error(await client.send(request), 401, "admin_token_required")


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/livez", "/metrics", "/v1/fleet"])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1", "::g"]
)
async def test_another_name_is_refused_since_dns_could_have_been_rebound(
    client: httpx2.AsyncClient, path: str, host: str
) -> None:
    response = await client.get(path, headers=BEARER | {"host": host})
    assert_error(response, 403, "host_not_allowed")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8081", "127.0.0.1", "localhost:8081", "LOCALHOST", "fleet.internal:80", "[::1]:8081", "10.0.0.7:8081"],
)
async def test_addresses_and_own_names_are_answered(client: httpx2.AsyncClient, host: str) -> None:
    assert (await client.get("/livez", headers={"host": host})).status_code == 200


@pytest.mark.asyncio
async def test_two_hosts_are_refused(client: httpx2.AsyncClient) -> None:
    response = await client.get("/livez", headers=[("host", "127.0.0.1"), ("host", "evil.example")])
    assert_error(response, 403, "host_not_allowed")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "http://localhost:8081"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/v1/fleet/reload"])
async def test_a_page_from_elsewhere_is_refused(
    client: httpx2.AsyncClient, fleet: ScriptedFleet, headers: dict[str, str], path: str
) -> None:
    response = await client.post(path, headers=BEARER | headers, json={})

    assert_error(response, 403, "origin_not_allowed")
    assert fleet.reloads == 0
    assert not any(name.startswith("access-control") for name in response.headers)


@pytest.mark.asyncio
async def test_a_page_of_its_own_is_answered(client: httpx2.AsyncClient) -> None:
    headers = BEARER | {"origin": "http://127.0.0.1:8081", "sec-fetch-site": "same-origin"}
    assert (await client.get("/v1/fleet", headers=headers)).status_code == 200


@pytest.mark.asyncio
async def test_a_preflight_gets_no_permission(client: httpx2.AsyncClient) -> None:
    headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    response = await client.options("/v1/fleet/reload", headers=headers)
    assert_error(response, 403, "origin_not_allowed")


# What each route answers


@pytest.mark.asyncio
async def test_livez_asks_nobody(client: httpx2.AsyncClient, fleet: ScriptedFleet) -> None:
    fleet.failure = RuntimeError("the controller is confused")
    response = await client.get("/livez")
    assert (response.status_code, response.text) == (200, "ok\n")


@pytest.mark.asyncio
async def test_readyz_says_what_is_missing(client: httpx2.AsyncClient, fleet: ScriptedFleet) -> None:
    assert (await client.get("/readyz")).text == "ok\n"
    verbose = await client.get("/readyz?verbose")
    assert verbose.text == "[+]workers ok\n[+]model/m ok\nreadyz check passed\n"

    fleet.set_replicas(replica("d-0", "m", ReplicaState.LOADING))
    missing = await client.get("/readyz")

    assert missing.status_code == 503
    assert "[-]model/m failed: no replica is Ready (Loading)" in missing.text


@pytest.mark.asyncio
async def test_metrics_in_the_format_asked_for(client: httpx2.AsyncClient) -> None:
    text = await client.get("/metrics")
    assert text.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "pilothouse_workers 1.0" in text.text

    openmetrics = await client.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


@pytest.mark.asyncio
async def test_the_fleet_comes_back_as_it_is(client: httpx2.AsyncClient, fleet: ScriptedFleet) -> None:
    response = await client.get("/v1/fleet", headers=BEARER)

    assert msgspec.json.decode(response.content, type=FleetStatus) == fleet.now
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.asyncio
@pytest.mark.parametrize("body", [b"", b"{}", b" { } "])
async def test_a_reload_tells_what_changed(client: httpx2.AsyncClient, fleet: ScriptedFleet, body: bytes) -> None:
    headers = BEARER | {"content-type": "application/json; charset=utf-8"}
    response = await client.post("/v1/fleet/reload", headers=headers, content=body)

    assert response.json() == {"changes": ["models.m.replicas: 1 -> 2"]}
    assert fleet.reloads == 1


@pytest.mark.asyncio
async def test_a_bad_fleet_file_is_told_in_full(client: httpx2.AsyncClient, fleet: ScriptedFleet) -> None:
    fleet.failure = PilothouseError("config_invalid", "fleet.yaml:3: models.m.replcas: unknown key")
    response = await client.post("/v1/fleet/reload", headers=BEARER, json={})

    error = assert_error(response, 422, "config_invalid")
    assert error["message"] == "fleet.yaml:3: models.m.replcas: unknown key"


@pytest.mark.asyncio
async def test_what_the_host_does_not_allow_is_a_conflict(client: httpx2.AsyncClient, fleet: ScriptedFleet) -> None:
    fleet.failure = PilothouseError("port_in_use", "127.0.0.1:8080 is taken", hint="Stop the other one.")
    error = assert_error(await client.post("/v1/fleet/reload", headers=BEARER, json={}), 409, "port_in_use")
    assert error["hint"] == "Stop the other one."


@pytest.mark.asyncio
async def test_what_may_work_later_says_when(client: httpx2.AsyncClient, fleet: ScriptedFleet) -> None:
    fleet.failure = PilothouseError("shutting_down", "The controller is stopping.")
    response = await client.post("/v1/fleet/reload", headers=BEARER, json={})
    assert_error(response, 503, "shutting_down")
    assert response.headers["retry-after"] == "1"


@pytest.mark.asyncio
async def test_a_defect_is_told_without_its_inside(
    client: httpx2.AsyncClient, fleet: ScriptedFleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.failure = RuntimeError("inside")

    error = assert_error(await client.get("/v1/fleet", headers=BEARER), 500, "internal_error")

    assert "inside" not in str(error)
    assert "inside" in caplog.text


# How it refuses


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("content_type", "body", "status", "code"),
    [
        (None, b"{}", 415, "unsupported_media_type"),
        ("text/plain", b"{}", 415, "unsupported_media_type"),
        ("application/x-www-form-urlencoded", b"a=b", 415, "unsupported_media_type"),
        ("application/jsonx", b"{}", 415, "unsupported_media_type"),
        ("application/json", b"{", 400, "invalid_json"),
        ("application/json", b"\xff", 400, "invalid_json"),
        ("application/json", b"{} {}", 400, "invalid_json"),
        ("application/json", b"[]", 400, "invalid_value"),
        ("application/json", b'{"dry_run": true}', 400, "invalid_value"),
        ("application/json", b"[" * 60_000, 400, "invalid_value"),
        ("application/json", b'{"dry_run":' + b"[" * 60_000, 400, "invalid_value"),
        ("application/json", b" " * (64 * 1024 + 1), 413, "body_too_large"),
    ],
)
async def test_a_body_that_does_not_fit_changes_nothing(
    client: httpx2.AsyncClient, fleet: ScriptedFleet, content_type: str | None, body: bytes, status: int, code: str
) -> None:
    headers = BEARER if content_type is None else BEARER | {"content-type": content_type}
    response = await client.post("/v1/fleet/reload", headers=headers, content=body)

    assert_error(response, status, code)
    assert fleet.reloads == 0


@pytest.mark.asyncio
async def test_a_body_of_unknown_length_is_read_no_further_than_allowed(client: httpx2.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 100:
            sent += 1
            yield b" " * 16384

    headers = BEARER | {"content-type": "application/json"}
    assert_error(await client.post("/v1/fleet/reload", headers=headers, content=endless()), 413, "body_too_large")


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/nowhere", "/", "/v1/fleet/", "/v1"])
async def test_an_unknown_path(client: httpx2.AsyncClient, path: str) -> None:
    assert_error(await client.get(path, headers=BEARER), 404, "unknown_url")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/fleet/reload", {"POST"}),
        ("POST", "/v1/fleet", {"GET", "HEAD"}),
        ("DELETE", "/livez", {"GET", "HEAD"}),
    ],
)
async def test_a_wrong_method(client: httpx2.AsyncClient, method: str, path: str, allowed: set[str]) -> None:
    response = await client.request(method, path, headers=BEARER)
    assert_error(response, 405, "method_not_allowed")
    assert set(response.headers["allow"].split(", ")) == allowed


# What it says of itself


@pytest.mark.asyncio
async def test_the_openapi_document_has_every_route_and_only_those(
    client: httpx2.AsyncClient, fleet: ScriptedFleet
) -> None:
    document = (await client.get("/openapi.json", headers=BEARER)).json()
    app = build_app(fleet, token=TOKEN)

    routes = {
        (route.path, method.lower())
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert {(path, method) for path, operations in document["paths"].items() for method in operations} == routes
    assert document["openapi"].startswith("3.1")


@pytest.mark.asyncio
async def test_answers_fit_the_openapi_document(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/openapi.json", headers=BEARER)).json()

    def check(response: httpx2.Response, path: str, method: str) -> None:
        described = document["paths"][path][method]["responses"][str(response.status_code)]
        schema = described["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator(schema | {"components": document["components"]}).validate(response.json())

    check(await client.get("/v1/fleet", headers=BEARER), "/v1/fleet", "get")
    check(await client.get("/v1/fleet"), "/v1/fleet", "get")
    check(await client.post("/v1/fleet/reload", headers=BEARER, json={}), "/v1/fleet/reload", "post")
    check(await client.post("/v1/fleet/reload", headers=BEARER, json=[]), "/v1/fleet/reload", "post")
    check(await client.get("/livez", headers={"host": "evil.example"}), "/livez", "get")


# For real, on a socket


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock


@pytest.mark.asyncio
async def test_on_a_real_socket_until_told_to_end(fleet: ScriptedFleet, listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    server = AdminServer(build_app(fleet, token=TOKEN))
    serving = asyncio.get_running_loop().create_task(server.serve_on(listening))
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        answers = [
            await client.get("/livez"),
            await client.get("/v1/fleet", headers=BEARER),
            await client.post("/v1/fleet/reload", headers=BEARER, json={}),
            await client.post("/v1/fleet/reload", headers=BEARER, content=b" " * 1_000_000),
            await client.get("/livez"),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 415, 200]
    assert all("server" not in answer.headers for answer in answers)

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /livez HTTP/1.0\r\n\r\n")
    head = await reader.read()
    assert head.startswith(b"HTTP/1.1 403")
    assert json.loads(head.partition(b"\r\n\r\n")[2])["error"]["code"] == "host_not_allowed"
    writer.close()
    await writer.wait_closed()

    server.should_exit = True
    await serving
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)
