import hashlib
import hmac
import re
from pathlib import Path

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.store.digests import key_digest, load_pepper, new_key, new_key_id


def test_keys_have_256_bits_in_url_safe_characters() -> None:
    keys = {new_key() for _ in range(50)}
    assert len(keys) == 50
    assert all(re.fullmatch(r"ph_[A-Za-z0-9_-]{43}", key) for key in keys)


def test_public_ids_tell_nothing_of_the_key() -> None:
    assert re.fullmatch(r"key_[0-9a-f]{24}", new_key_id())


def test_the_digest_is_hmac_sha_256_of_the_key_under_the_pepper() -> None:
    pepper, key = b"p" * 32, "ph_abc"
    assert key_digest(pepper, key) == hmac.new(pepper, key.encode(), hashlib.sha256).hexdigest()
    assert key_digest(b"q" * 32, key) != key_digest(pepper, key)


def test_the_pepper_is_made_once(tmp_path: Path) -> None:
    pepper = load_pepper(tmp_path / "pepper")
    assert len(pepper) == 32
    assert load_pepper(tmp_path / "pepper") == pepper


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 33])
def test_a_damaged_pepper_is_not_used(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pepper").write_bytes(content)
    with pytest.raises(PilothouseError, match=f"pepper holds {len(content)} bytes") as caught:
        load_pepper(tmp_path / "pepper")
    assert caught.value.code == "state_unreadable"
    assert (tmp_path / "pepper").read_bytes() == content
