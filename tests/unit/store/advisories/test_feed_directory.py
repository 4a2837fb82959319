import json
import zipfile
from pathlib import Path

import pytest

from pilothouse.model.errors import PilothouseError
from pilothouse.policy.advisories.packages import Package, PackageNames
from pilothouse.policy.advisories.records import OsvRecord
from pilothouse.store.advisories import feed_directory
from pilothouse.store.advisories.feed_directory import FeedDirectory, changes_of
from pilothouse.wire.advisories.any_shape import records_in

AFFECTED = [{"package": {"ecosystem": "PyPI", "name": "vllm"}}]
RECORD = json.dumps({"id": "A", "modified": "2026-05-01T00:00:00Z", "affected": AFFECTED})
NAMES = PackageNames((Package(key="pypi/vllm"),))


def read(directory: Path) -> tuple[list[str], tuple[str, ...]]:
    """The ids of what was read, and what was not."""
    found = FeedDirectory(directory, NAMES).read()
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
    assert FeedDirectory(tmp_path, NAMES).read().date == "never"
    (tmp_path / "a.json").write_text(f"[{RECORD}, {other}]")
    (tmp_path / "b.json").write_text("[]")
    found = FeedDirectory(tmp_path, NAMES).read()
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


def test_a_file_that_may_not_be_read_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path.name == "a.json":
            raise PermissionError(13, "Permission denied")
        return real(path)

    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(RECORD)
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    ids, unread = read(tmp_path)
    assert ids == ["A"]
    assert unread == (f"{tmp_path}/a.json: Permission denied",)


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


def test_a_file_is_read_again_only_if_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def counted(content: bytes) -> list[OsvRecord]:
        seen.append(content)
        return records_in(content)

    monkeypatch.setattr(feed_directory, "records_in", counted)
    feed = FeedDirectory(tmp_path, NAMES)
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(RECORD.replace('"A"', f'"{name}"'))
    assert [each.id for each in feed.read().records] == ["a", "b"]
    (tmp_path / "b.json").write_text(RECORD.replace('"A"', '"other"'))
    assert [each.id for each in feed.read().records] == ["a", "other"]
    (tmp_path / "a.json").unlink()
    assert [each.id for each in feed.read().records] == ["other"]
    assert len(seen) == 3
