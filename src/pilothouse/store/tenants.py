"""Organisations, tenants and keys: made, changed and taken away, each change with its entry in the audit log.

The data plane never comes here: it has the `TenantDirectory` that the controller makes of it.
"""

import ipaddress
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import sqlalchemy as sa

from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import KeyId, OrganisationId, TenantId
from pilothouse.model.tenant_records import AuditEntry, KeyRecord, NewKey, OrganisationRecord, TenantRecord
from pilothouse.model.tenants import DirectoryChange, Key, Limits, Organisation, Tenant, TenantDirectory
from pilothouse.model.units import DurationNs, WallNs
from pilothouse.store import tables
from pilothouse.store.database import DatabasePlace, database_errors, open_database, transaction
from pilothouse.store.digests import key_digest, load_pepper, new_key, new_key_id
from pilothouse.store.revocations import RevocationFile

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_IDS_AT_ONCE = 500  # both databases take more parameters
_JSON_COLUMNS = frozenset(("limits", "models", "scopes", "networks", "change"))

_Record = TypeVar("_Record", OrganisationRecord, TenantRecord, KeyRecord, AuditEntry)
_Revocable = TypeVar("_Revocable", TenantRecord, KeyRecord)


class TenantStore:
    """The tenants of one fleet. Opening makes or migrates the database; close it, or use it in a `with`.

    Several processes may have it open at once. Each call is one transaction. `actor` is who the audit log names.
    What is revoked is noted in `revocations` too, which the workers of this host read.

    Raises:
        PilothouseError: state_unreadable, here and from every method; tenant_not_found, tenant_exists and
            invalid_value from those that say so.
    """

    def __init__(self, place: DatabasePlace, pepper: Path, revocations: RevocationFile | None = None) -> None:
        self._place = place
        self._revocations = revocations
        self._pepper = load_pepper(pepper)
        self._engine = open_database(place)

    # What there is.

    def organisations(self) -> tuple[OrganisationRecord, ...]:
        """All, by id."""
        with self._reading() as connection:
            query = sa.select(tables.organisations).order_by(tables.organisations.c.id)
            return tuple(_record(row, OrganisationRecord) for row in connection.execute(query))

    def tenants(self, organisation: OrganisationId | None = None) -> tuple[TenantRecord, ...]:
        """All, or those of one organisation, by id; revoked ones too."""
        query = sa.select(tables.tenants).order_by(tables.tenants.c.id)
        if organisation is not None:
            query = query.where(tables.tenants.c.organisation == organisation)
        with self._reading() as connection:
            return tuple(_record(row, TenantRecord) for row in connection.execute(query))

    def keys(self, tenant: TenantId | None = None) -> tuple[KeyRecord, ...]:
        """All, or those of one tenant, in the order they were made; revoked and expired ones too."""
        query = sa.select(tables.keys).order_by(tables.keys.c.created_at, tables.keys.c.id)
        if tenant is not None:
            query = query.where(tables.keys.c.tenant == tenant)
        with self._reading() as connection:
            return tuple(_record(row, KeyRecord) for row in connection.execute(query))

    def organisation(self, id_: OrganisationId) -> OrganisationRecord:
        """One organisation. Raises tenant_not_found."""
        with self._reading() as connection:
            return _find(connection, tables.organisations, id_, OrganisationRecord)

    def tenant(self, id_: TenantId) -> TenantRecord:
        """One tenant. Raises tenant_not_found."""
        with self._reading() as connection:
            return _find(connection, tables.tenants, id_, TenantRecord)

    def key(self, id_: KeyId) -> KeyRecord:
        """One key. Raises tenant_not_found."""
        with self._reading() as connection:
            return _find(connection, tables.keys, id_, KeyRecord)

    def audit(self, *, before: int | None = None, limit: int = 100) -> tuple[AuditEntry, ...]:
        """The newest entries of the audit log, newest first; those before an id, to go back page by page."""
        query = sa.select(tables.audit).order_by(tables.audit.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(tables.audit.c.id < before)
        with self._reading() as connection:
            return tuple(_record(row, AuditEntry) for row in connection.execute(query))

    def version(self) -> int:
        """The version of what there is: the id of the last change."""
        with self._reading() as connection:
            return _version(connection)

    def budgets(self) -> TenantDirectory:
        """Of the directory only what has budgets of its own."""
        with self._reading() as connection:
            decode = _Interning()

            def having(table: sa.Table, shape: type[Any]) -> tuple[Any, ...]:
                query = sa.select(table).where(table.c.limits.not_like('%"budgets":[]%'))
                if "revoked_at" in table.c:
                    query = query.where(table.c.revoked_at.is_(None))
                found = (decode(row, shape) for row in connection.execute(query))
                return tuple(each for each in found if each.limits.budgets)

            return TenantDirectory(
                version=_version(connection),
                organisations=having(tables.organisations, Organisation),
                tenants=having(tables.tenants, Tenant),
                keys=having(tables.keys, Key),
            )

    def directory(self) -> TenantDirectory:
        """What the data plane has to know: nothing of what is revoked. Expired keys are in it, to be told so.

        Its version is one of before it was read: `changes_since` may tell again what is in it already.
        """
        with self._reading() as connection:
            version = _version(connection)
            tenants = {
                row.id: row
                for row in connection.execute(sa.select(tables.tenants).where(tables.tenants.c.revoked_at.is_(None)))
            }
            keys = connection.execute(
                sa.select(tables.keys)
                .where(tables.keys.c.revoked_at.is_(None))
                .order_by(tables.keys.c.created_at, tables.keys.c.id)
            )
            decode = _Interning()
            return TenantDirectory(
                version=version,
                organisations=tuple(
                    decode(row, Organisation) for row in connection.execute(sa.select(tables.organisations))
                ),
                tenants=tuple(decode(row, Tenant) for row in tenants.values()),
                keys=tuple(decode(row, Key) for row in keys if row.tenant in tenants),
            )

    def changes_since(self, version: int) -> DirectoryChange | None:
        """What has changed in the directory since a version of it; `None` if nothing has."""
        with self._reading() as connection:
            entries = connection.execute(
                sa.select(tables.audit.c.id, tables.audit.c.action, tables.audit.c.subject)
                .where(tables.audit.c.id > version)
                .order_by(tables.audit.c.id)
            ).all()
            if not entries:
                return None
            ids: dict[str, dict[str, None]] = {"organisation": {}, "tenant": {}, "key": {}}
            for _, action, subject in entries:
                ids[action.partition(".")[0]][subject] = None
            decode = _Interning()
            tenants = _rows(connection, tables.tenants, ids["tenant"])
            keys = _rows(connection, tables.keys, ids["key"])
            return DirectoryChange(
                base=version,
                version=entries[-1].id,
                organisations=tuple(
                    decode(row, Organisation) for row in _rows(connection, tables.organisations, ids["organisation"])
                ),
                tenants=tuple(decode(row, Tenant) for row in tenants if row.revoked_at is None),
                keys=tuple(decode(row, Key) for row in keys if row.revoked_at is None),
                gone_tenants=tuple(row.id for row in tenants if row.revoked_at is not None),
                gone_keys=tuple(row.id for row in keys if row.revoked_at is not None),
            )

    # What is changed.

    def create_organisation(self, record: OrganisationRecord, actor: str) -> OrganisationRecord:
        """A new organisation; its `created_at` is now. Raises tenant_exists, invalid_value."""
        record = msgspec.structs.replace(record, created_at=_now())
        with self._changing() as connection:
            self._insert(connection, tables.organisations, record, "organisation.create", actor)
        return record

    def update_organisation(self, id_: OrganisationId, change: Mapping[str, Any], actor: str) -> OrganisationRecord:
        """Set some of its fields. Raises tenant_not_found, invalid_value."""
        with self._changing() as connection:
            return self._update(
                connection, tables.organisations, id_, change, OrganisationRecord, "organisation.update", actor
            )

    def create_tenant(self, record: TenantRecord, actor: str) -> TenantRecord:
        """A new tenant; its organisation is made too if there is none. Raises tenant_exists, invalid_value."""
        record = msgspec.structs.replace(record, created_at=_now(), revoked_at=None)
        with self._changing() as connection:
            if not _exists(connection, tables.organisations, record.organisation):
                made = OrganisationRecord(
                    id=record.organisation, name=record.organisation, created_at=record.created_at
                )
                self._insert(connection, tables.organisations, made, "organisation.create", actor)
            self._insert(connection, tables.tenants, record, "tenant.create", actor)
        return record

    def update_tenant(self, id_: TenantId, change: Mapping[str, Any], actor: str) -> TenantRecord:
        """Set some of its fields. Raises tenant_not_found, invalid_value."""
        with self._changing() as connection:
            return self._update(connection, tables.tenants, id_, change, TenantRecord, "tenant.update", actor)

    def revoke_tenant(self, id_: TenantId, actor: str) -> TenantRecord:
        """Its keys are not accepted any more. Doing it twice changes nothing. Raises tenant_not_found."""
        with self._changing() as connection:
            revoked = self._revoke(connection, tables.tenants, id_, TenantRecord, "tenant.revoke", actor)
        if self._revocations is not None:
            self._revocations.note(id_)
        return revoked

    def create_key(self, record: KeyRecord, actor: str) -> NewKey:
        """A new key of a tenant; `id` and `created_at` are made here. Raises tenant_not_found, invalid_value."""
        with self._changing() as connection:
            return self._new_key(connection, record, actor)

    def update_key(self, id_: KeyId, change: Mapping[str, Any], actor: str) -> KeyRecord:
        """Set some of its fields. Raises tenant_not_found, invalid_value."""
        with self._changing() as connection:
            return self._update(connection, tables.keys, id_, change, KeyRecord, "key.update", actor)

    def revoke_key(self, id_: KeyId, actor: str) -> KeyRecord:
        """It is not accepted any more. Doing it twice changes nothing. Raises tenant_not_found."""
        with self._changing() as connection:
            revoked = self._revoke(connection, tables.keys, id_, KeyRecord, "key.revoke", actor)
        if self._revocations is not None:
            self._revocations.note(id_)
        return revoked

    def rotate_key(self, id_: KeyId, grace: DurationNs, actor: str) -> NewKey:
        """A new key with the same rights; the old one expires after `grace`. Raises tenant_not_found, invalid_value."""
        with self._changing() as connection:
            old = _find(connection, tables.keys, id_, KeyRecord)
            if old.revoked_at is not None:
                raise PilothouseError("invalid_value", f"{id_} is revoked: there is nothing to be rotated.")
            end = WallNs(_now() + grace)
            if old.expires_at is None or old.expires_at > end:
                self._update(connection, tables.keys, id_, {"expires_at": end}, KeyRecord, "key.rotate", actor)
            return self._new_key(connection, old, actor)

    def close(self) -> None:
        """Give the database back."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # How.

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with database_errors(self._place), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _changing(self) -> Iterator[sa.Connection]:
        with database_errors(self._place), transaction(self._engine) as connection:
            yield connection

    def _new_key(self, connection: sa.Connection, record: KeyRecord, actor: str) -> NewKey:
        tenant = _find(connection, tables.tenants, record.tenant, TenantRecord)
        if tenant.revoked_at is not None:
            raise PilothouseError("invalid_value", f"tenant {tenant.id} is revoked.")
        record = msgspec.structs.replace(record, id=KeyId(new_key_id()), created_at=_now(), revoked_at=None)
        secret = new_key()
        digest = key_digest(self._pepper, secret)
        self._insert(connection, tables.keys, record, "key.create", actor, digest=digest)
        return NewKey(secret=secret, key=record)

    def _insert(
        self, connection: sa.Connection, table: sa.Table, record: msgspec.Struct, action: str, actor: str, **more: str
    ) -> None:
        values = _values(record)
        if _exists(connection, table, values["id"]):
            raise PilothouseError("tenant_exists", f"{values['id']} exists already.")
        connection.execute(table.insert().values(**values, **more))
        _note(connection, actor, action, values["id"], msgspec.to_builtins(record))

    def _update(
        self,
        connection: sa.Connection,
        table: sa.Table,
        id_: str,
        change: Mapping[str, Any],
        shape: type[_Record],
        action: str,
        actor: str,
    ) -> _Record:
        record = msgspec.structs.replace(_find(connection, table, id_, shape), **change)
        values = _values(record)
        if change:
            connection.execute(table.update().where(table.c.id == id_).values({name: values[name] for name in change}))
            _note(connection, actor, action, id_, msgspec.to_builtins(dict(change)))
        return record

    def _revoke(
        self, connection: sa.Connection, table: sa.Table, id_: str, shape: type[_Revocable], action: str, actor: str
    ) -> _Revocable:
        found = _find(connection, table, id_, shape)
        if found.revoked_at is not None:
            return found
        return self._update(connection, table, id_, {"revoked_at": _now()}, shape, action, actor)


class _Interning:
    """Rows as the data plane's values. A hundred thousand keys share the few limits and lists that they have."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Any] = {}

    def __call__(self, row: sa.Row[Any], shape: type[Any]) -> Any:
        values: dict[str, Any] = {}
        for field in msgspec.structs.fields(shape):
            value = getattr(row, field.encode_name)
            if field.name == "digest":
                value = bytes.fromhex(value)
            elif field.name in _JSON_COLUMNS and value is not None:
                known = self._known.get((field.name, value))
                if known is None:
                    known = self._known[field.name, value] = msgspec.json.decode(value, type=field.type)
                value = known
            elif field.name == "tier":
                value = field.type(value)
            values[field.name] = value
        return shape(**values)


def _record(row: sa.Row[Any], shape: type[_Record]) -> _Record:
    values = {
        field.name: msgspec.json.decode(value) if field.name in _JSON_COLUMNS and value is not None else value
        for field in msgspec.structs.fields(shape)
        if (value := getattr(row, field.name)) is not None or not field.required
    }
    return msgspec.convert(values, shape)


def _find(connection: sa.Connection, table: sa.Table, id_: str, shape: type[_Record]) -> _Record:
    row = connection.execute(sa.select(table).where(table.c.id == id_)).first()
    if row is None:
        raise PilothouseError("tenant_not_found", f"there is no {table.name[:-1]} {id_}.")
    return _record(row, shape)


def _version(connection: sa.Connection) -> int:
    return connection.execute(sa.select(sa.func.max(tables.audit.c.id))).scalar() or 0


def _rows(connection: sa.Connection, table: sa.Table, ids: Iterable[str]) -> list[sa.Row[Any]]:
    """The rows with these ids."""
    wanted = list(ids)
    rows: list[sa.Row[Any]] = []
    for start in range(0, len(wanted), _IDS_AT_ONCE):
        some = wanted[start : start + _IDS_AT_ONCE]
        rows += connection.execute(sa.select(table).where(table.c.id.in_(some)))
    return rows


def _exists(connection: sa.Connection, table: sa.Table, id_: str) -> bool:
    return connection.execute(sa.select(table.c.id).where(table.c.id == id_)).first() is not None


def _values(record: msgspec.Struct) -> dict[str, Any]:
    """A record as a row, if it makes sense."""
    values: dict[str, Any] = msgspec.to_builtins(record)
    if not isinstance(record, KeyRecord) and not _NAME.fullmatch(values["id"]):
        raise PilothouseError(
            "invalid_value",
            f"{values['id']!r} is not a name: 1 to 63 of a-z, 0-9, dot, dash and underscore, from letter or digit to "
            "letter or digit.",
        )
    _check(record)
    return {
        name: msgspec.json.encode(value).decode() if name in _JSON_COLUMNS and value is not None else value
        for name, value in values.items()
    }


def _check(record: msgspec.Struct) -> None:
    limits: Limits = record.limits  # type: ignore[attr-defined]
    numbers = [each for rate in limits.per_minute if rate for each in (rate.per_minute, rate.capacity)]
    numbers += [limits.concurrent_requests or 0]
    numbers += [each for budget in limits.budgets for each in (budget.tokens or 0, budget.nano_money or 0)]
    if any(number < 0 or number >= 1 << 53 for number in numbers):
        raise PilothouseError("invalid_value", "A limit is a number from 0 to 2^53.")
    if isinstance(record, TenantRecord) and not (0 < record.weight <= 1000 and 0 < record.kv_share <= 1):
        raise PilothouseError("invalid_value", "weight is above 0 and at most 1000, kv_share above 0 and at most 1.")
    if isinstance(record, KeyRecord):
        for network in record.networks or ():
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise PilothouseError("invalid_value", f"{network!r} is not a network: {error}.") from error


def _note(connection: sa.Connection, actor: str, action: str, subject: str, change: object) -> None:
    text = msgspec.json.encode(change).decode()
    connection.execute(
        tables.audit.insert().values(at=_now(), actor=actor, action=action, subject=subject, change=text)
    )


def _now() -> WallNs:
    return WallNs(time.time_ns())
