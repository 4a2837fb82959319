"""What is revoked reaches whoever follows the file, whatever became of the file meanwhile."""

from pathlib import Path

import pytest

from pilothouse.store import revocations
from pilothouse.store.revocations import RevocationFile, RevocationReader


def test_each_id_is_heard_once(tmp_path: Path) -> None:
    file, reader = RevocationFile(tmp_path / "revoked"), RevocationReader(tmp_path / "revoked")
    assert reader.news() == []
    file.note("key_1")
    file.note("web")
    assert reader.news() == ["key_1", "web"]
    assert reader.news() == []
    file.note("key_2")
    assert reader.news() == ["key_2"]
    assert RevocationReader(tmp_path / "revoked").news() == ["key_1", "web", "key_2"]
    assert (tmp_path / "revoked").stat().st_mode & 0o777 == 0o600


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "revoked"
    reader = RevocationReader(path)
    path.write_bytes(b"key_1\nkey")
    assert reader.news() == ["key_1"]
    with path.open("ab") as file:
        file.write(b"_2\n")
    assert reader.news() == ["key_2"]


def test_a_file_that_has_grown_large_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocations, "_MAX_BYTES", 100)
    file, reader = RevocationFile(tmp_path / "revoked"), RevocationReader(tmp_path / "revoked")
    for number in range(100):
        file.note(f"key_{number}")
        assert reader.news() == [f"key_{number}"]
    assert (tmp_path / "revoked").stat().st_size < 200
