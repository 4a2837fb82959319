"""The workers' directory follows the database, whoever changes it."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilothouse.controller import directory_keeper
from pilothouse.controller.directory_keeper import DirectoryKeeper
from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.tenant_records import KeyRecord, TenantRecord
from pilothouse.model.tenants import DirectoryChange
from pilothouse.model.units import WallNs
from pilothouse.store.directory_file import read_parts
from pilothouse.store.tenants import TenantStore
from pilothouse.testing.processes import wait_until

pytestmark = pytest.mark.asyncio

WEB = TenantId("web")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TenantStore]:
    with TenantStore(tmp_path / "state.db", tmp_path / "pepper") as opened:
        opened.create_tenant(
            TenantRecord(id=WEB, organisation=OrganisationId("acme"), name="", created_at=WallNs(0)), "me"
        )
        yield opened


def new_key(store: TenantStore) -> KeyId:
    record = KeyRecord(id=KeyId(""), tenant=WEB, name="", created_at=WallNs(0))
    return store.create_key(record, "me").key.id


async def test_changes_are_told_in_order_and_the_missed_ones_again(tmp_path: Path, store: TenantStore) -> None:
    told: list[DirectoryChange] = []
    keeper = DirectoryKeeper(store, tmp_path / "tenants", told.append)
    await keeper.start()
    began = keeper.version
    assert next(read_parts(tmp_path / "tenants")).tenants[0].id == WEB
    first = new_key(store)
    await keeper.refresh()
    middle = keeper.version
    store.revoke_key(first, "me")
    await keeper.refresh()
    await keeper.refresh()
    assert [(change.base, change.version) for change in told] == [(began, middle), (middle, keeper.version)]
    assert told[1].gone_keys == (first,)
    assert keeper.since(keeper.version) == []
    assert keeper.since(middle) == told[1:]
    assert keeper.since(began) == told
    assert keeper.since(began - 1) is None, "a worker from before the first change that is kept"
    assert keeper.since(keeper.version + 9) is None, "a worker of another database"


async def test_a_change_by_somebody_else_is_seen_and_the_file_follows(
    tmp_path: Path, store: TenantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_keeper, "POLL_S", 0.01)
    monkeypatch.setattr(directory_keeper, "STORE_EVERY_S", 0.02)
    told: list[DirectoryChange] = []
    keeper = DirectoryKeeper(store, tmp_path / "tenants", told.append)
    await keeper.start()
    running = asyncio.get_running_loop().create_task(keeper.run())
    try:
        with TenantStore(tmp_path / "state.db", tmp_path / "pepper") as other:
            made = new_key(other)
        await wait_until(lambda: bool(told), "the change")
        assert [key.id for key in told[0].keys] == [made]
        await wait_until(lambda: keeper.stored_version == keeper.version, "the file")
        assert [key.id for part in read_parts(tmp_path / "tenants") for key in part.keys] == [made]
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
