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
    secret, view = store.create(TenantId("team-a"), "ci")
    assert view.tenant == "team-a"
    assert view.digest == key_digest(load_pepper(tmp_path / "pepper"), secret)
    assert store.list() == (view,)
    assert store.find(secret) == view
    assert store.find(secret + "x") is None
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret.encode() not in everything


def test_keys_are_listed_in_the_order_they_were_made(store: KeyStore) -> None:
    made = [store.create(TenantId("t"), str(number))[1] for number in range(5)]
    assert store.list() == tuple(made)


def test_two_stores_on_one_database_see_each_others_keys(tmp_path: Path, store: KeyStore) -> None:
    with KeyStore(tmp_path / "state.db", tmp_path / "pepper") as another:
        secret, view = another.create(TenantId("t"), "n")
        assert store.find(secret) == view


def test_the_operators_key_is_made_on_the_first_run_only(tmp_path: Path, store: KeyStore) -> None:
    credentials = tmp_path / "config" / "credentials"
    first, made = ensure_operator_key(store, credentials, DEFAULT)
    assert made
    assert first.startswith("ph_")
    assert ensure_operator_key(store, credentials, DEFAULT) == (first, False)
    assert len(store.list()) == 1


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
