"""The keys that the fleet itself makes and knows: the operator's on a first run, and all of them for the data plane."""

import time
from pathlib import Path
from types import TracebackType
from typing import Self

from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName, KeyId, OrganisationId, TenantId
from pilothouse.model.tenant_records import KeyRecord, NewKey, TenantRecord
from pilothouse.model.tenants import Key
from pilothouse.model.units import WallNs
from pilothouse.store import credentials
from pilothouse.store.database import DatabasePlace
from pilothouse.store.digests import key_digest, load_pepper
from pilothouse.store.revocations import RevocationFile
from pilothouse.store.tenants import TenantStore

OPERATOR_TENANT = TenantId("operator")
"""Whose key `pilothouse up` makes on a first run."""

_ACTOR = "pilothouse up"


class KeyStore:
    """The keys of one fleet. Opening makes or migrates the database; close it, or use it in a `with`.

    Several processes may have it open at once. Each call is one short transaction.

    Raises:
        PilothouseError: state_unreadable, here and from every method.
    """

    def __init__(self, database: DatabasePlace, pepper: Path, revocations: RevocationFile | None = None) -> None:
        self._pepper = load_pepper(pepper)
        self.tenants = TenantStore(database, pepper, revocations)

    def create(self, tenant: TenantId, name: str) -> NewKey:
        """A new key of a tenant, which is made too."""
        self._ensure_tenant(tenant)
        record = KeyRecord(id=KeyId(""), tenant=tenant, name=name, created_at=WallNs(0))
        return self.tenants.create_key(record, _ACTOR)

    def find(self, secret: str) -> Key | None:
        """The key with this secret, `None` when it is not one of this fleet's, or not accepted any more."""
        digest = bytes.fromhex(key_digest(self._pepper, secret))
        now = time.time_ns()
        for key in self.tenants.directory().keys:
            if key.digest == digest:
                return key if key.expires_at is None or key.expires_at > now else None
        return None

    def close(self) -> None:
        """Give the database back."""
        self.tenants.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ensure_tenant(self, tenant: TenantId) -> None:
        record = TenantRecord(id=tenant, organisation=OrganisationId(tenant), name=tenant, created_at=WallNs(0))
        try:
            self.tenants.create_tenant(record, _ACTOR)
        except PilothouseError as error:
            if error.code != "tenant_exists":
                raise


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
    secret = store.create(OPERATOR_TENANT, "operator").secret
    credentials.store_key(credentials_path, fleet, secret)
    return secret, True
