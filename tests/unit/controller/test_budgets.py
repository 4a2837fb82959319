"""Budgets against the ledger: where counting begins, and when somebody is told."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilothouse.controller.budgets import BudgetAlarms, spent_budgets
from pilothouse.model.ids import DeploymentName, KeyId, ModelName, OrganisationId, RequestId, TenantId
from pilothouse.model.ledger import LedgerRow, Outcome
from pilothouse.model.tenant_records import KeyRecord, TenantRecord
from pilothouse.model.tenants import BudgetLimit, Level, Limits, Period
from pilothouse.model.units import WallNs
from pilothouse.store.ledger import Ledger
from pilothouse.store.tenants import TenantStore

BUDGET = BudgetLimit(period=Period.MONTH, tokens=100, nano_money=1_000, alarm_ratios=(0.5, 1.0))
OWNER = TenantRecord(
    id=TenantId("web"),
    organisation=OrganisationId("acme"),
    name="",
    created_at=WallNs(0),
    limits=Limits(budgets=(BUDGET,)),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TenantStore]:
    with TenantStore(tmp_path / "state.db", tmp_path / "pepper") as opened:
        opened.create_tenant(OWNER, "me")
        for _ in range(3):
            opened.create_key(KeyRecord(id=KeyId(""), tenant=OWNER.id, name="", created_at=WallNs(0)), "me")
        yield opened


@pytest.fixture
def ledger(tmp_path: Path, store: TenantStore) -> Iterator[Ledger]:
    with Ledger(tmp_path / "state.db") as opened:
        yield opened


def spend(ledger: Ledger, number: int, tokens: int, money: int) -> None:
    now = WallNs(time.time_ns())
    row = LedgerRow(
        id=RequestId(f"req_{number}"),
        organisation=OWNER.organisation,
        tenant=OWNER.id,
        key=KeyId("k"),
        model=ModelName("m"),
        deployment=DeploymentName("d"),
        started_at=now,
        ended_at=now,
        outcome=Outcome.COMPLETED,
        output_tokens=tokens,
        nano_cost=money,
    )
    ledger.insert([row])


def test_only_what_has_budgets_is_read(store: TenantStore) -> None:
    found = store.budgets()
    assert [each.id for each in found.tenants] == [OWNER.id]
    assert (found.organisations, found.keys) == ((), ())
    store.revoke_tenant(OWNER.id, "me")
    assert store.budgets().tenants == ()


def test_what_was_spent_is_found_by_the_names_of_shared_limits(store: TenantStore, ledger: Ledger) -> None:
    spend(ledger, 1, 30, 200)
    found = spent_budgets(ledger, store.directory(), time.time_ns())
    assert [(each.level, each.shared_name, each.used, each.limit) for each in found] == [
        (Level.TENANT, "tenant:web:tokens_per_month", 30, 100),
        (Level.TENANT, "tenant:web:money_per_month", 200, 1_000),
    ]


def test_a_threshold_is_told_once(store: TenantStore, ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    alarms = BudgetAlarms(store, ledger)
    assert alarms.check() == []
    spend(ledger, 1, 60, 100)
    assert [(budget.window.value, ratio) for budget, ratio in alarms.check()] == [("tokens per month", 0.5)]
    assert alarms.check() == []
    assert "budget alarm" in caplog.text
    spend(ledger, 2, 60, 450)
    assert [(budget.window.value, ratio) for budget, ratio in alarms.check()] == [
        ("tokens per month", 1.0),
        ("money per month", 0.5),
    ]
