import json
import zipfile
from pathlib import Path

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.policy.advisories.packages import Package, PackageNames
from pilothouse.store.advisories import feed_directory
from pilothouse.store.advisories.feed_directory import changes_of, read_listed

AFFECTED = [{"package": {"ecosystem": "PyPI", "name": "vllm"}}]
RECORD = json.dumps({"id": "A", "modified": "2026-05-01T00:00:00Z", "affected": AFFECTED})
NAMES = PackageNames((Package(key="pypi/vllm"),))


def read(directory: Path) -> tuple[list[str], tuple[str, ...]]:
    """The ids of what was read, and what was not."""
    found = read_listed(directory, NAMES)
    return sorted(each.id for each in found.records), found.unread


def test_files_of_every_depth_and_archives(tmp_path: Path) -> None:
    (tmp_path / "2026" / "05").mkdir(parents=True)
    (tmp_path / "2026" / "05" / "a.json").write_text(RECORD)
    (tmp_path / "notes.txt").write_text("nothing")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("x/b.json", RECORD.replace('"A"', '"B"'))
        archive.writestr("x/readme.md", "nothing")
    assert read(tmp_path) == (["A", "B"], ())


def test_only_what_is_listed_is_kept_but_all_dates_it(tmp_path: Path) -> None:
    other = json.dumps({"id": "B", "modified": "2026-06-01T00:00:00Z", "affected": []})
    assert read_listed(tmp_path, NAMES).date == "never"
    (tmp_path / "a.json").write_text(f"[{RECORD}, {other}]")
    (tmp_path / "b.json").write_text("[]")
    found = read_listed(tmp_path, NAMES)
    assert (found.date, [each.id for each in found.records]) == ("2026-06-01", ["A"])


def test_what_cannot_be_read_is_named_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_directory, "MAX_FILE_BYTES", 200)
    (tmp_path / "a.json").write_text(RECORD)
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.json").write_text(" " * 201)
    (tmp_path / "d.zip").write_bytes(b"PK no archive")
    with zipfile.ZipFile(tmp_path / "e.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.json", " " * 10_000)
    ids, unread = read(tmp_path)
    assert ids == ["A"]
    assert [line.removeprefix(f"{tmp_path}/").partition(": ")[0] for line in unread] == [
        "b.json", "c.json", "d.zip", "e.zip:bomb.json",
    ]  # fmt: skip


def test_links_are_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "a.json").write_text(RECORD)
    (inside / "a.json").symlink_to(outside / "a.json")
    (inside / "all").symlink_to(outside)
    assert read(inside) == ([], ())


def test_a_directory_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PilothouseError) as caught:
        read(tmp_path / "missing")
    assert caught.value.code == "feed_unreadable"
    assert changes_of(tmp_path / "missing") == []
    monkeypatch.setattr(feed_directory, "MAX_FILES", 1)
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(RECORD)
    with pytest.raises(PilothouseError, match="more than 1 files"):
        read(tmp_path)


def test_a_change_shows(tmp_path: Path) -> None:
    seen = [changes_of(tmp_path)]
    (tmp_path / "a.json").write_text(RECORD)
    seen.append(changes_of(tmp_path))
    (tmp_path / "a.json").write_text(RECORD + " ")
    seen.append(changes_of(tmp_path))
    (tmp_path / "a.json").unlink()
    assert changes_of(tmp_path) == seen[0]
    assert len({tuple(each) for each in seen}) == 3
