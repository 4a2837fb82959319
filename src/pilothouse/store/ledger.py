"""The ledger: one row a turn, inserted as often as need be and there once."""

import datetime as dt
import functools
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from pilothouse.model.ledger import LedgerRow, UsageBy, UsageRow
from pilothouse.model.units import SECOND, WallNs
from pilothouse.store.database import DatabasePlace, database_errors, open_database
from pilothouse.store.tables import ledger
from pilothouse.store.tenant_usage import MAX_RESULTS, BucketSum, UsageQuery

MAX_BATCH = 500
"""Rows in one statement: 18 columns each stay below SQLite's 32,766 parameters."""

_SUMS = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "nano_cost")


class Ledger:
    """The ledger of one fleet; close it, or use it in a `with`.

    Raises:
        PilothouseError: state_unreadable, here and from every method.
    """

    def __init__(self, place: DatabasePlace) -> None:
        self._place = place
        self._engine = open_database(place)

    def insert(self, rows: Sequence[LedgerRow]) -> int:
        """Put rows in that are not there yet, and say how many these were. All of a call are in, or none."""
        insert: Any = postgresql.insert if self._engine.dialect.name == "postgresql" else sqlite.insert
        values = [{**msgspec.structs.asdict(row), "day": _day(row.started_at)} for row in rows]
        inserted = 0
        with database_errors(self._place), self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN" if self._engine.dialect.name == "postgresql" else "BEGIN IMMEDIATE")
            try:
                for start in range(0, len(values), MAX_BATCH):
                    statement = insert(ledger).values(values[start : start + MAX_BATCH])
                    statement = statement.on_conflict_do_nothing(index_elements=["id"]).returning(ledger.c.id)
                    inserted += len(connection.execute(statement).all())
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")
        return inserted

    def usage(
        self,
        by: Sequence[UsageBy],
        *,
        first_day: dt.date | None = None,
        last_day: dt.date | None = None,
        tenant: str | None = None,
    ) -> tuple[UsageRow, ...]:
        """Turns added up by some of their properties, in the order of these. Days are of UTC and both included."""
        columns = [ledger.c[each].label(each.value) for each in by]
        query = sa.select(*columns, sa.func.count().label("turns"), *_sums())
        if columns:
            query = query.group_by(*columns).order_by(*columns)
        if first_day is not None:
            query = query.where(ledger.c.day >= first_day.isoformat())
        if last_day is not None:
            query = query.where(ledger.c.day <= last_day.isoformat())
        if tenant is not None:
            query = query.where(ledger.c.tenant == tenant)
        with database_errors(self._place), self._engine.connect() as connection:
            return tuple(msgspec.convert(dict(row), UsageRow) for row in connection.execute(query).mappings())

    def tenant_usage(self, query: UsageQuery) -> tuple[BucketSum, ...]:
        """What a page of a tenant's usage is made of: turns by the bucket they began in, and by the query's groups.

        At most `MAX_RESULTS` and one more.
        """
        start, end = query.start_s * SECOND, query.page_end_s * SECOND
        bucket = ((ledger.c.started_at - start) // (query.width_s * SECOND)).label("bucket")
        groups = [bucket, *(ledger.c[name].label(name) for name in query.groups)]
        asked = sa.select(*groups, sa.func.count().label("turns"), *_sums()).where(
            ledger.c.tenant == query.tenant,
            ledger.c.started_at >= start,
            ledger.c.started_at < end,
            ledger.c.day.between(_day(WallNs(start)), _day(WallNs(max(start, end - 1)))),
        )
        for column, chosen in ((ledger.c.model, query.models), (ledger.c.key, query.keys)):
            if chosen is not None:
                asked = asked.where(column.in_(chosen))
        asked = asked.group_by(*groups).order_by(*groups).limit(MAX_RESULTS + 1)
        with database_errors(self._place), self._engine.connect() as connection:
            return tuple(msgspec.convert(dict(row), BucketSum) for row in connection.execute(asked).mappings())

    def spent_since(self, start: WallNs, column: str) -> dict[str, tuple[int, int]]:
        """Tokens and billionths of money spent by the turns that began since `start`, for each value of a column.

        `column` is `organisation`, `tenant` or `key`: what budgets are set against when counting begins anew.
        """
        tokens = sa.func.sum(ledger.c.input_tokens + ledger.c.output_tokens)
        query = (
            sa.select(
                ledger.c[column],
                sa.cast(tokens, sa.BigInteger),
                sa.cast(sa.func.sum(ledger.c.nano_cost), sa.BigInteger),
            )
            .where(ledger.c.started_at >= start, ledger.c.day >= _day(start))
            .group_by(ledger.c[column])
        )
        with database_errors(self._place), self._engine.connect() as connection:
            return {name: (tokens, money) for name, tokens, money in connection.execute(query)}

    def close(self) -> None:
        """Give the database back."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _sums() -> list[sa.Label[int]]:
    return [sa.cast(sa.func.coalesce(sa.func.sum(ledger.c[name]), 0), sa.BigInteger).label(name) for name in _SUMS]


def _day(at: WallNs) -> str:
    return _day_text(at // (86_400 * SECOND))


@functools.lru_cache(maxsize=64)
def _day_text(number: int) -> str:
    return (dt.date(1970, 1, 1) + dt.timedelta(days=number)).isoformat()
