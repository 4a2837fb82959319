import stat
from pathlib import Path

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.store.admin_token import ensure_admin_token, read_admin_token


def test_the_token_is_made_once_and_read_by_whoever_may(tmp_path: Path) -> None:
    path = tmp_path / "admin_token"
    assert read_admin_token(path) is None
    token = ensure_admin_token(path)
    assert len(token) == 43
    assert ensure_admin_token(path) == token
    assert read_admin_token(path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_put_there_by_hand_is_taken_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "admin_token").write_text("chosen\r\n")
    assert ensure_admin_token(tmp_path / "admin_token") == "chosen"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_file_without_a_token_never_means_that_none_is_needed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "admin_token").write_bytes(content)
    with pytest.raises(PilothouseError, match="holds no token") as caught:
        read_admin_token(tmp_path / "admin_token")
    assert caught.value.code == "state_unreadable"
