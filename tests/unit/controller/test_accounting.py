"""What the controller tells tenants of their usage, and how it is asked."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from pilothouse.config.paths import FleetPaths
from pilothouse.controller import accounting as accounting_module
from pilothouse.controller.accounting import MAX_USAGE_QUESTIONS, Accounting
from pilothouse.controller.publisher import Publisher
from pilothouse.model.control import ControlMessage, UsageAnswered, UsageAsked, WorkerJoined
from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import DeploymentName, KeyId, ModelName, OrganisationId, RequestId, TenantId
from pilothouse.model.ledger import LedgerRow, Outcome
from pilothouse.model.units import SECOND, WallNs
from pilothouse.store.ledger import Ledger
from pilothouse.store.tenant_usage import BucketSum, UsageQuery
from pilothouse.store.tenants import TenantStore
from pilothouse.wire import control_channel

pytestmark = pytest.mark.asyncio

AT_S = 20_000 * 86_400
QUERY = f"start_time={AT_S}&end_time={AT_S + 1}"


def asked(number: int = 1, query: str = QUERY, tenant: str = "web") -> UsageAsked:
    return UsageAsked(number=number, tenant=TenantId(tenant), query=query)


@pytest_asyncio.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    with Ledger(tmp_path / "state.db") as opened:
        opened.insert(
            [
                LedgerRow(
                    id=RequestId("req_1"),
                    organisation=OrganisationId("o"),
                    tenant=TenantId("web"),
                    key=KeyId("key_1"),
                    model=ModelName("m"),
                    deployment=DeploymentName("d"),
                    started_at=WallNs(AT_S * SECOND),
                    ended_at=WallNs(AT_S * SECOND),
                    outcome=Outcome.COMPLETED,
                    input_tokens=10,
                )
            ]
        )
        yield opened


@pytest_asyncio.fixture
async def accounting(ledger: Ledger, tmp_path: Path) -> Accounting:
    return Accounting(ledger, TenantStore(tmp_path / "tenants.db", tmp_path / "pepper"), tmp_path / "spool")


async def test_a_worker_hears_a_tenants_usage_over_the_control_socket(
    accounting: Accounting, paths: FleetPaths
) -> None:
    publisher = Publisher(paths.control_socket, lambda message: None, on_usage=accounting.usage)
    await publisher.start()
    try:
        reader, writer = await asyncio.open_unix_connection(str(paths.control_socket))
        writer.write(control_channel.encode(WorkerJoined(index=0, pid=1)))
        for number, tenant in ((7, "web"), (8, "other")):
            writer.write(control_channel.encode(asked(number, tenant=tenant)))
        decoder, found = control_channel.Decoder(), list[ControlMessage]()
        async with asyncio.timeout(5):
            while len(found) < 2:
                found += decoder.feed(await reader.read(65536))
        writer.close()
        await writer.wait_closed()
    finally:
        await publisher.close()
    answers = {each.number: msgspec.json.decode(each.body) for each in found if isinstance(each, UsageAnswered)}
    assert answers[7]["data"][0]["results"][0]["input_tokens"] == 10
    assert answers[8]["data"][0]["results"] == []


async def test_a_wrong_question_is_refused(accounting: Accounting) -> None:
    answer = await accounting.usage(asked(query="start_time=x"))
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.body) == ("invalid_value", "")


async def test_a_page_that_would_be_too_long_is_refused(
    accounting: Accounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting_module, "MAX_RESULTS", 0)
    answer = await accounting.usage(asked())
    assert answer.refusal is not None
    assert answer.refusal.param == "limit"


async def test_a_ledger_that_cannot_be_read_is_said(
    accounting: Accounting, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(query: UsageQuery) -> tuple[BucketSum, ...]:
        raise PilothouseError("state_unreadable", "no disk")

    monkeypatch.setattr(ledger, "tenant_usage", fail)
    answer = await accounting.usage(asked())
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.refusal.spec.status) == ("usage_unavailable", 503)
    assert "disk" not in answer.refusal.message


async def test_only_so_many_questions_are_asked_of_the_database_at_once(
    accounting: Accounting, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def wait(query: UsageQuery) -> tuple[BucketSum, ...]:
        release.wait(10)
        return ()

    monkeypatch.setattr(ledger, "tenant_usage", wait)
    running = [asyncio.ensure_future(accounting.usage(asked(each))) for each in range(MAX_USAGE_QUESTIONS)]
    await asyncio.sleep(0)
    refused = await accounting.usage(asked())
    release.set()
    answers = await asyncio.gather(*running)
    assert refused.refusal is not None
    assert all(each.refusal is None for each in answers)
    assert (await accounting.usage(asked())).refusal is None
