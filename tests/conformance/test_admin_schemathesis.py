"""The admin API against its own OpenAPI document: whatever fits the document, and what does not.

Over a real socket, as the controller serves it: schemathesis' own way into an application leaves threads behind that
the next tests on the same process wait for.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from pilothouse.console.admin import build_app
from pilothouse.console.openapi import openapi_document
from pilothouse.console.server import AdminServer
from pilothouse.console.tenant_routes import TenantAdministration
from pilothouse.model.ids import FleetName
from pilothouse.model.status import FleetStatus, ReloadResult, WorkerStatus
from pilothouse.store.ledger import Ledger
from pilothouse.store.tenants import TenantStore
from pilothouse.telemetry.board import Boards
from pilothouse.telemetry.exposition import Exposition, expose

pytestmark = pytest.mark.timeout(180)  # hundreds of requests

TOKEN = "an-admin-token-0123456789"
HEADERS = {"authorization": f"Bearer {TOKEN}", "host": "127.0.0.1:8081"}

_STATUS = FleetStatus(
    fleet=FleetName("default"),
    version="1.2.3",
    gateway="http://127.0.0.1:8080",
    admin="http://127.0.0.1:8081",
    fleet_file=None,
    ready=True,
    snapshot_version=1,
    workers=(WorkerStatus(index=0, pid=10, snapshot_version=1),),
    replicas=(),
)


class QuietFleet:
    """Operations of a fleet without anything in it."""

    def status(self) -> FleetStatus:
        return _STATUS

    async def reload(self) -> ReloadResult:
        return ReloadResult(changes=())

    def metrics_text(self, accept: str) -> Exposition:
        return expose(Boards(boards=(), samples=()), _STATUS, accept=accept)


async def nobody_to_tell() -> None:
    """No worker listens."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the admin API listens, on a thread of its own."""
    directory: Path = tmp_path_factory.mktemp("admin")
    with (
        TenantStore(directory / "state.db", directory / "pepper") as store,
        Ledger(directory / "state.db") as ledger,
        contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener,
    ):
        administration = TenantAdministration(store, ledger, nobody_to_tell)
        server = AdminServer(build_app(QuietFleet(), token=TOKEN, tenants=administration))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve_on(listener)))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


schema = schemathesis.openapi.from_dict(openapi_document())


@schema.parametrize()
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_operation_does_what_the_document_says(case: Any, url: str) -> None:
    # That no route answers without the token is tested beside the guard: here every call carries it. And JSON Schema
    # takes 1e3 for an integer, which we do not.
    case.call_and_validate(base_url=url, headers=HEADERS, excluded_checks=[ignored_auth, positive_data_acceptance])
