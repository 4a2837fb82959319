"""Keys of tenants. A key is shown once, when it is made; what is kept is its digest."""

import time
from pathlib import Path
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from pilothouse.model.fleet import KeyView
from pilothouse.model.ids import FleetName, KeyId, TenantId
from pilothouse.store import credentials
from pilothouse.store.database import database_errors, open_database, transaction
from pilothouse.store.digests import key_digest, load_pepper, new_key, new_key_id
from pilothouse.store.tables import keys

OPERATOR_TENANT = TenantId("operator")
"""Whose key `pilothouse up` makes on a first run."""


class KeyStore:
    """The keys of one fleet. Opening makes or migrates the database; close it, or use it in a `with`.

    Several processes may have it open at once. Each call is one short transaction.

    Raises:
        PilothouseError: state_unreadable, here and from every method.
    """

    def __init__(self, database: Path, pepper: Path) -> None:
        self._path = database
        self._pepper = load_pepper(pepper)
        self._engine = open_database(database)

    def create(self, tenant: TenantId, name: str) -> tuple[str, KeyView]:
        """A new key of a tenant: the secret, which cannot be shown again, and what the gateway knows of it."""
        secret = new_key()
        view = KeyView(id=KeyId(new_key_id()), tenant=tenant, digest=key_digest(self._pepper, secret))
        row = {"id": view.id, "tenant": tenant, "name": name, "digest": view.digest, "created_at": time.time_ns()}
        with database_errors(self._path), transaction(self._engine) as connection:
            connection.execute(keys.insert().values(row))
        return secret, view

    def list(self) -> tuple[KeyView, ...]:
        """All keys, in the order they were made."""
        query = sa.select(keys.c.id, keys.c.tenant, keys.c.digest).order_by(keys.c.created_at, keys.c.id)
        with database_errors(self._path), self._engine.connect() as connection:
            return tuple(_view(row) for row in connection.execute(query))

    def find(self, secret: str) -> KeyView | None:
        """The key with this secret, `None` when it is not one of this fleet's."""
        digest = key_digest(self._pepper, secret)
        query = sa.select(keys.c.id, keys.c.tenant, keys.c.digest).where(keys.c.digest == digest)
        with database_errors(self._path), self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else _view(row)

    def close(self) -> None:
        """Give the database back."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ensure_operator_key(store: KeyStore, credentials_path: Path, fleet: FleetName) -> tuple[str, bool]:
    """The operator's key for this fleet, and whether it was made now.

    The key in the credentials file serves as long as the store knows it. If there is none, or the store has lost it
    (the state directory was deleted), a new one is made and written there.

    Raises:
        PilothouseError: state_unreadable.
    """
    known = credentials.stored_key(credentials_path, fleet)
    if known is not None and store.find(known) is not None:
        return known, False
    secret, _ = store.create(OPERATOR_TENANT, "operator")
    credentials.store_key(credentials_path, fleet, secret)
    return secret, True


def _view(row: sa.Row[str, str, str]) -> KeyView:
    return KeyView(id=KeyId(row.id), tenant=TenantId(row.tenant), digest=row.digest)
