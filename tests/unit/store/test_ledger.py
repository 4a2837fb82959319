import datetime as dt
from collections.abc import Iterator

import msgspec
import pytest

from pilothouse.model.ids import DeploymentName, KeyId, ModelName, OrganisationId, RequestId, TenantId
from pilothouse.model.ledger import LedgerRow, Outcome, UsageBy
from pilothouse.model.units import SECOND, WallNs
from pilothouse.store.database import DatabasePlace
from pilothouse.store.ledger import MAX_BATCH, Ledger

DAY = 86_400 * SECOND


def turn(number: int, *, tenant: str = "t", model: str = "m", day: int = 20_000, **fields: object) -> LedgerRow:
    row = LedgerRow(
        id=RequestId(f"req_{number:024x}"),
        organisation=OrganisationId("o"),
        tenant=TenantId(tenant),
        key=KeyId("key_1"),
        model=ModelName(model),
        deployment=DeploymentName("d"),
        started_at=WallNs(day * DAY + 5),
        ended_at=WallNs(day * DAY + 9),
        outcome=Outcome.COMPLETED,
        input_tokens=10,
        cached_tokens=4,
        output_tokens=20,
        nano_cost=300,
    )
    return msgspec.structs.replace(row, **fields)


@pytest.fixture
def ledger(place: DatabasePlace) -> Iterator[Ledger]:
    with Ledger(place) as opened:
        yield opened


def test_a_row_that_is_inserted_twice_is_there_once(ledger: Ledger) -> None:
    rows = [turn(number) for number in range(5)]
    assert ledger.insert(rows) == 5
    assert ledger.insert([*rows, turn(5)]) == 1
    assert ledger.insert([]) == 0
    [total] = ledger.usage([])
    assert (total.turns, total.input_tokens, total.output_tokens, total.nano_cost) == (6, 60, 120, 1800)


def test_large_batches_are_inserted_whole(ledger: Ledger) -> None:
    rows = [turn(number) for number in range(2 * MAX_BATCH + 1)]
    assert ledger.insert(rows) == len(rows)
    assert ledger.insert(rows) == 0


def test_an_empty_ledger_sums_to_nothing(ledger: Ledger) -> None:
    assert [each.turns for each in ledger.usage([])] == [0]
    assert ledger.usage([UsageBy.TENANT]) == ()


def test_usage_is_summed_by_what_is_asked_for(ledger: Ledger) -> None:
    ledger.insert(
        [
            turn(1, tenant="a", model="x"),
            turn(2, tenant="a", model="y", day=20_001),
            turn(3, tenant="b", model="x"),
            turn(4, tenant="a", model="x", output_tokens=0, reasoning_tokens=7),
        ]
    )
    found = [(each.tenant, each.model, each.day, each.turns) for each in ledger.usage([UsageBy.TENANT, UsageBy.MODEL])]
    assert found == [("a", "x", None, 2), ("a", "y", None, 1), ("b", "x", None, 1)]
    days = ledger.usage([UsageBy.DAY])
    assert [(each.day, each.turns) for each in days] == [("2024-10-04", 3), ("2024-10-05", 1)]
    assert [each.reasoning_tokens for each in ledger.usage([], tenant="a")] == [7]
    assert [each.turns for each in ledger.usage([], first_day=dt.date(2024, 10, 5))] == [1]
    assert [each.turns for each in ledger.usage([], last_day=dt.date(2024, 10, 4))] == [3]


def test_what_budgets_begin_with_is_summed_from_an_instant(ledger: Ledger) -> None:
    ledger.insert([turn(1, tenant="a"), turn(2, tenant="a", day=20_001), turn(3, tenant="b", day=20_001)])
    assert ledger.spent_since(WallNs(20_001 * DAY), "tenant") == {"a": (30, 300), "b": (30, 300)}
    assert ledger.spent_since(WallNs(20_000 * DAY), "organisation") == {"o": (90, 900)}
    assert ledger.spent_since(WallNs(20_001 * DAY + 6), "tenant") == {}


def test_t2_a_cancelled_stream_is_in_the_usage_with_what_it_generated(ledger: Ledger) -> None:
    # litellm#14457: a cancelled stream left no row; litellm#37992: an explicit zero was replaced by an estimate.
    ledger.insert(
        [
            turn(1, outcome=Outcome.CANCELLED, output_tokens=7, nano_cost=70),
            turn(2, outcome=Outcome.INTERRUPTED, output_tokens=3, nano_cost=30),
            turn(3, input_tokens=0, cached_tokens=0, output_tokens=0, nano_cost=0),
        ]
    )
    [total] = ledger.usage([])
    assert (total.turns, total.input_tokens, total.output_tokens, total.nano_cost) == (3, 20, 10, 100)
