from collections.abc import Iterator
from pathlib import Path

import pytest

from pilothouse.model.ids import FleetName, TenantId
from pilothouse.store.credentials import store_key, stored_key
from pilothouse.store.digests import key_digest, load_pepper
from pilothouse.store.keys import KeyStore, ensure_operator_key

DEFAULT = FleetName("default")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KeyStore]:
    with KeyStore(tmp_path / "state.db", tmp_path / "pepper") as store:
        yield store


def test_a_key_is_known_by_its_digest_alone(tmp_path: Path, store: KeyStore) -> None:
    secret = store.create(TenantId("team-a"), "ci").secret
    found = store.find(secret)
    assert found is not None
    assert found.tenant == "team-a"
    assert found.digest.hex() == key_digest(load_pepper(tmp_path / "pepper"), secret)
    assert store.tenants.directory().keys == (found,)
    assert store.find(secret + "x") is None
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret.encode() not in everything


def test_two_stores_on_one_database_see_each_others_keys(tmp_path: Path, store: KeyStore) -> None:
    with KeyStore(tmp_path / "state.db", tmp_path / "pepper") as another:
        made = another.create(TenantId("t"), "n")
        found = store.find(made.secret)
        assert found is not None
        assert found.id == made.key.id


def test_the_operators_key_is_made_on_the_first_run_only(tmp_path: Path, store: KeyStore) -> None:
    credentials = tmp_path / "config" / "credentials"
    first, made = ensure_operator_key(store, credentials, DEFAULT)
    assert made
    assert first.startswith("ph_")
    assert ensure_operator_key(store, credentials, DEFAULT) == (first, False)
    assert len(store.tenants.directory().keys) == 1


def test_a_key_that_the_store_has_lost_is_made_anew(tmp_path: Path, store: KeyStore) -> None:
    credentials = tmp_path / "config" / "credentials"
    store_key(credentials, DEFAULT, "ph_of_a_deleted_state")
    secret, made = ensure_operator_key(store, credentials, DEFAULT)
    assert made
    assert stored_key(credentials, DEFAULT) == secret
    assert store.find(secret) is not None


def test_lost_credentials_give_a_new_key_and_leave_the_old_one(tmp_path: Path, store: KeyStore) -> None:
    credentials = tmp_path / "config" / "credentials"
    first, _ = ensure_operator_key(store, credentials, DEFAULT)
    credentials.unlink()
    second, made = ensure_operator_key(store, credentials, DEFAULT)
    assert made
    assert second != first
    # Programs that were given the first one go on working.
    assert store.find(first) is not None
