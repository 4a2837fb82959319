from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import KeyId, ModelName, OrganisationId, TenantId
from pilothouse.model.tenant_records import KeyRecord, OrganisationRecord, TenantRecord
from pilothouse.model.tenants import BudgetLimit, Limits, Period, RateLimit, Scope, Tier
from pilothouse.model.units import SECOND, DurationNs, WallNs
from pilothouse.store import tenants
from pilothouse.store.database import DatabasePlace, open_database, transaction
from pilothouse.store.digests import key_digest
from pilothouse.store.revocations import RevocationFile, RevocationReader
from pilothouse.store.tables import metadata
from pilothouse.store.tenants import TenantStore

ACME = OrganisationId("acme")
WEB = TenantId("acme-web")
LIMITS = Limits(
    requests=RateLimit(per_minute=60, burst=10, borrow=True),
    budgets=(BudgetLimit(period=Period.MONTH, nano_money=5_000_000_000),),
)
UNKNOWN = WallNs(0)


@pytest.fixture
def store(place: DatabasePlace, tmp_path: Path) -> Iterator[TenantStore]:
    with TenantStore(place, tmp_path / "pepper") as opened:
        yield opened


def tenant(id_: TenantId = WEB, **fields: object) -> TenantRecord:
    return TenantRecord(id=id_, organisation=ACME, name="Web", created_at=UNKNOWN, **fields)  # type: ignore[arg-type]


def key(of: TenantId = WEB, **fields: object) -> KeyRecord:
    return KeyRecord(id=KeyId(""), tenant=of, name="ci", created_at=UNKNOWN, **fields)  # type: ignore[arg-type]


def test_the_steps_lead_to_the_tables_as_they_are_declared(place: DatabasePlace) -> None:
    engine = open_database(place)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_what_is_made_is_found(store: TenantStore) -> None:
    made = store.create_tenant(tenant(limits=LIMITS, tier=Tier.BATCH, models=(ModelName("m"),), kv_share=0.5), "me")
    assert made.created_at > 0
    assert store.tenant(WEB) == made
    assert store.tenants() == store.tenants(ACME) == (made,)
    assert store.tenants(OrganisationId("other")) == ()
    assert [each.id for each in store.organisations()] == [ACME]
    new = store.create_key(key(scopes=(Scope.INFERENCE,), networks=("10.0.0.0/8",), limits=LIMITS), "me")
    assert new.key.id.startswith("key_")
    assert store.key(new.key.id) == new.key
    assert store.keys() == store.keys(WEB) == (new.key,)


def test_the_secret_is_stored_as_its_digest_alone(store: TenantStore, place: DatabasePlace, tmp_path: Path) -> None:
    store.create_tenant(tenant(), "me")
    new = store.create_key(key(), "me")
    engine = open_database(place)
    with engine.connect() as connection:
        stored = [str(row) for table in metadata.sorted_tables for row in connection.execute(sa.select(table))]
    engine.dispose()
    assert new.secret.startswith("ph_")
    assert not any(new.secret in row for row in stored)
    assert any(key_digest((tmp_path / "pepper").read_bytes(), new.secret) in row for row in stored)


def test_the_directory_has_what_the_data_plane_needs(store: TenantStore) -> None:
    store.create_organisation(OrganisationRecord(id=ACME, name="Acme", created_at=UNKNOWN, limits=LIMITS), "me")
    store.create_tenant(tenant(tier=Tier.REALTIME), "me")
    new = store.create_key(key(limits=LIMITS, expires_at=WallNs(5)), "me")
    gone = store.create_key(key(), "me")
    store.revoke_key(gone.key.id, "me")
    found = store.directory()
    assert found.version == store.version() == store.audit()[0].id
    assert [(each.id, each.limits) for each in found.organisations] == [(ACME, LIMITS)]
    assert [(each.id, each.tier) for each in found.tenants] == [(WEB, Tier.REALTIME)]
    assert [(each.id, each.limits, each.expires_at, len(each.digest)) for each in found.keys] == [
        (new.key.id, LIMITS, 5, 32)
    ]


def test_many_keys_share_the_limits_they_have(store: TenantStore) -> None:
    store.create_tenant(tenant(), "me")
    for _ in range(3):
        store.create_key(key(limits=LIMITS), "me")
    assert len({id(each.limits) for each in store.directory().keys}) == 1


def test_a_change_has_what_the_audit_log_names_and_nothing_else(store: TenantStore) -> None:
    store.create_tenant(tenant(), "me")
    kept, gone = store.create_key(key(), "me"), store.create_key(key(), "me")
    before = store.version()
    assert store.changes_since(before) is None
    store.update_key(kept.key.id, {"limits": LIMITS}, "me")
    store.revoke_key(gone.key.id, "me")
    store.update_organisation(ACME, {"name": "Acme & Sons"}, "me")
    change = store.changes_since(before)
    assert change is not None
    assert (change.base, change.version) == (before, store.version())
    assert [(each.id, each.limits) for each in change.keys] == [(kept.key.id, LIMITS)]
    assert change.gone_keys == (gone.key.id,)
    assert [each.name for each in change.organisations] == ["Acme & Sons"]
    assert (change.tenants, change.gone_tenants) == ((), ())
    store.revoke_tenant(WEB, "me")
    last = store.changes_since(change.version)
    assert last is not None
    assert last.gone_tenants == (WEB,)


def test_changes_from_nothing_are_the_directory(store: TenantStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "_IDS_AT_ONCE", 3)
    store.create_tenant(tenant(), "me")
    for _ in range(8):
        store.create_key(key(), "me")
    change, directory = store.changes_since(0), store.directory()
    assert change is not None
    assert {each.id for each in change.keys} == {each.id for each in directory.keys}
    assert change.tenants == directory.tenants


def test_what_is_revoked_is_noted_for_the_workers(place: DatabasePlace, tmp_path: Path) -> None:
    reader = RevocationReader(tmp_path / "revoked")
    assert reader.news() == []
    with TenantStore(place, tmp_path / "pepper", RevocationFile(tmp_path / "revoked")) as store:
        store.create_tenant(tenant(), "me")
        made = store.create_key(key(), "me")
        store.revoke_key(made.key.id, "me")
        assert reader.news() == [made.key.id]
        store.revoke_tenant(WEB, "me")
        assert reader.news() == [WEB]
        assert reader.news() == []


def test_a_revoked_tenant_takes_its_keys_with_it(store: TenantStore) -> None:
    store.create_tenant(tenant(), "me")
    store.create_key(key(), "me")
    first = store.revoke_tenant(WEB, "me")
    assert store.revoke_tenant(WEB, "me") == first
    assert store.directory().keys == ()
    assert store.directory().tenants == ()
    with pytest.raises(PilothouseError, match="revoked"):
        store.create_key(key(), "me")


def test_fields_are_changed_one_by_one(store: TenantStore) -> None:
    store.create_tenant(tenant(limits=LIMITS), "me")
    assert store.update_tenant(WEB, {"weight": 3.0, "models": ("m",)}, "me").weight == 3.0
    changed = store.tenant(WEB)
    assert (changed.weight, changed.models, changed.limits, changed.name) == (3.0, ("m",), LIMITS, "Web")
    assert store.update_organisation(ACME, {"name": "Acme Ltd"}, "me").name == "Acme Ltd"
    new = store.create_key(key(), "me").key
    assert store.update_key(new.id, {"expires_at": 99}, "me").expires_at == 99
    assert store.update_key(new.id, {}, "me").expires_at == 99


def test_a_rotated_key_has_a_time_to_go(store: TenantStore) -> None:
    store.create_tenant(tenant(), "me")
    old = store.create_key(key(limits=LIMITS), "me")
    new = store.rotate_key(old.key.id, DurationNs(3600 * SECOND), "me")
    assert new.secret != old.secret
    assert (new.key.limits, new.key.tenant, new.key.expires_at) == (LIMITS, WEB, None)
    expires_at = store.key(old.key.id).expires_at
    assert expires_at is not None
    assert abs(expires_at - new.key.created_at - 3600 * SECOND) < 60 * SECOND
    store.rotate_key(old.key.id, DurationNs(24 * 3600 * SECOND), "me")
    assert store.key(old.key.id).expires_at == expires_at  # an end is not put off
    store.revoke_key(old.key.id, "me")
    with pytest.raises(PilothouseError, match="revoked"):
        store.rotate_key(old.key.id, DurationNs(0), "me")


@pytest.mark.parametrize("name", ["", "Acme", "a b", "-a", "a/", "x" * 64, "ä"])
def test_names_are_checked(store: TenantStore, name: str) -> None:
    with pytest.raises(PilothouseError) as caught:
        store.create_tenant(tenant(TenantId(name)), "me")
    assert caught.value.code == "invalid_value"


@pytest.mark.parametrize(
    "fields",
    [
        {"weight": 0.0},
        {"kv_share": 1.5},
        {"limits": Limits(concurrent_requests=-1)},
        {"limits": Limits(requests=RateLimit(per_minute=1 << 53))},
    ],
)
def test_values_are_checked(store: TenantStore, fields: dict[str, object]) -> None:
    with pytest.raises(PilothouseError) as caught:
        store.create_tenant(tenant(WEB, **fields), "me")
    assert caught.value.code == "invalid_value"
    assert store.organisations() == ()


def test_networks_are_checked(store: TenantStore) -> None:
    store.create_tenant(tenant(), "me")
    with pytest.raises(PilothouseError, match="not a network"):
        store.create_key(key(networks=("10.0.0.1/8",)), "me")


def test_what_there_is_not_cannot_be_changed(store: TenantStore) -> None:
    for call in (
        lambda: store.tenant(WEB),
        lambda: store.key(KeyId("key_1")),
        lambda: store.organisation(ACME),
        lambda: store.update_tenant(WEB, {"weight": 2.0}, "me"),
        lambda: store.revoke_key(KeyId("key_1"), "me"),
        lambda: store.create_key(key(), "me"),
    ):
        with pytest.raises(PilothouseError) as caught:
            call()
        assert caught.value.code == "tenant_not_found"


def test_a_name_is_taken_once(store: TenantStore) -> None:
    store.create_tenant(tenant(), "me")
    with pytest.raises(PilothouseError) as caught:
        store.create_tenant(tenant(), "me")
    assert caught.value.code == "tenant_exists"


def test_every_change_is_in_the_audit_log_and_reading_is_not(store: TenantStore) -> None:
    store.create_tenant(tenant(), "alice")
    new = store.create_key(key(), "bob")
    store.update_tenant(WEB, {"weight": 2.0}, "carol")
    store.revoke_key(new.key.id, "dave")
    store.revoke_key(new.key.id, "dave")
    store.keys()
    entries = store.audit()
    assert [(each.actor, each.action, each.subject) for each in reversed(entries)] == [
        ("alice", "organisation.create", "acme"),
        ("alice", "tenant.create", "acme-web"),
        ("bob", "key.create", new.key.id),
        ("carol", "tenant.update", "acme-web"),
        ("dave", "key.revoke", new.key.id),
    ]
    assert entries[1].change == {"weight": 2.0}
    assert not any(new.secret in str(each) for each in entries)
    assert store.audit(limit=1) == entries[:1]
    assert store.audit(before=entries[1].id) == entries[2:]


def test_the_audit_log_is_append_only(store: TenantStore, place: DatabasePlace) -> None:
    store.create_tenant(tenant(), "me")
    engine = open_database(place)
    for statement in ("DELETE FROM audit", "UPDATE audit SET actor = 'nobody'"):
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), transaction(engine) as connection:
            connection.exec_driver_sql(statement)
    engine.dispose()
    assert len(store.audit()) == 2


def test_a_change_that_fails_leaves_no_entry(store: TenantStore) -> None:
    with pytest.raises(PilothouseError):
        store.create_tenant(tenant(kv_share=0.0), "me")
    assert store.audit() == ()


def test_a_missing_server_is_said_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(PilothouseError) as caught:
        TenantStore("postgresql://pilot:hunter2@127.0.0.1:1/none", tmp_path / "pepper")
    assert caught.value.code == "state_unreadable"
    assert "hunter2" not in caught.value.message
