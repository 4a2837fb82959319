import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.store import private_files
from pilothouse.store.private_files import create_private, read_private, replace_private


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_private_and_alone_in_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    replace_private(path, b"one")
    replace_private(path, b"two")
    assert path.read_bytes() == b"two"
    assert mode_of(path) == 0o600
    assert mode_of(path.parent) == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["secret"]


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    assert create_private(path, lambda: b"one") == b"one"
    assert create_private(path, lambda: b"two") == b"one"
    assert mode_of(path) == 0o600


def test_whoever_comes_second_gets_the_winners(tmp_path: Path) -> None:
    path = tmp_path / "secret"

    def another_process_is_faster() -> bytes:
        path.write_bytes(b"theirs")
        return b"ours"

    assert create_private(path, another_process_is_faster) == b"theirs"
    assert path.read_bytes() == b"theirs"


def test_a_failed_write_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    replace_private(path, b"old")

    def disk_full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(PilothouseError, match="No space left on device") as caught:
        replace_private(path, b"new")
    assert caught.value.code == "state_unreadable"
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


def test_a_mode_that_lets_others_read_is_tightened(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x")
    path.chmod(0o644)
    assert read_private(path) == b"x"
    assert mode_of(path) == 0o600


def test_a_missing_file_is_no_error(tmp_path: Path) -> None:
    assert read_private(tmp_path / "none") is None
    assert read_private(tmp_path / "no" / "directory") is None


def test_something_else_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    with pytest.raises(PilothouseError, match=r"secret: Is a directory") as caught:
        read_private(tmp_path / "secret")
    assert caught.value.code == "state_unreadable"


def test_a_file_where_a_directory_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    with pytest.raises(PilothouseError, match="state") as caught:
        replace_private(tmp_path / "state" / "secret", b"x")
    assert str(tmp_path / "state") in caught.value.message + caught.value.hint


def test_advice_names_the_owner_when_it_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(PilothouseError) as caught, private_files.unreadable_state(path):
        raise PermissionError(13, "Permission denied")
    assert f"belongs to user id {path.stat().st_uid}" in caught.value.hint


def test_advice_for_an_own_directory_names_the_mode(tmp_path: Path) -> None:
    with pytest.raises(PilothouseError) as caught, private_files.unreadable_state(tmp_path / "secret"):
        raise PermissionError(13, "Permission denied")
    assert "write access" in caught.value.hint


CREATE = """
import pathlib, sys
from pilothouse.store.private_files import create_private
print("ready", flush=True); sys.stdin.read()
print(create_private(pathlib.Path(sys.argv[2]), lambda: sys.argv[1].encode()).decode(), end="")
"""


def test_processes_that_start_together_agree(tmp_path: Path, run_together: Callable[..., list[str]]) -> None:
    made = run_together(CREATE, str(tmp_path / "secret"))
    assert set(made) == {(tmp_path / "secret").read_text()}
