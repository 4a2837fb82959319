"""A directory of advisory files that the operator mirrors: JSON of any shape we read, and archives of it."""

import stat
import zipfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.policy.advisories.packages import PackageNames
from pilothouse.policy.advisories.records import OsvRecord, Snapshot
from pilothouse.wire.advisories.any_shape import records_in

MAX_FILE_BYTES = 32 * 1024 * 1024  # as OSV caps its own answers
MAX_FILES = 500_000  # GitHub's whole database has about 300,000

FileChange: TypeAlias = tuple[str, int, int]
"""A file's path, when it was changed in nanoseconds, and its size."""


class _File(msgspec.Struct, frozen=True):
    """A file as it was read: how many there are in it, the newest change of any record, and those that matter."""

    change: FileChange
    count: int
    newest: str
    records: tuple[OsvRecord, ...]
    unread: tuple[str, ...]


class FeedDirectory:
    """A directory that is read again and again, for what it says of the packages that `names` lists.

    Read are all `.json` files, and those in `.zip` files; again only if they have changed. Links are not followed.
    """

    def __init__(self, directory: Path, names: PackageNames) -> None:
        self.directory = directory
        self._names = names
        self._files: dict[str, _File] = {}

    def read(self) -> Snapshot:
        """What it says now, dated by the newest change to any record.

        What cannot be read is named, and counts as it was when it last could: a file that is half written must not let
        a flaw be forgotten.

        Raises:
            PilothouseError: feed_unreadable when the directory itself cannot be read, or has too many files.
        """
        found: dict[str, _File] = {}
        count = 0
        try:
            for path in _paths(self.directory):
                file = found[str(path)] = self._read(path)
                count += file.count
                if count > MAX_FILES:
                    raise PilothouseError("feed_unreadable", f"{self.directory} has more than {MAX_FILES} files")
        except OSError as error:
            message = f"{self.directory} cannot be read: {error.strerror or error}"
            raise PilothouseError("feed_unreadable", message) from error
        self._files = found
        return self.last()

    def last(self) -> Snapshot:
        """What it said when it could last be read."""
        files = self._files.values()
        return Snapshot(
            date=max((each.newest for each in files), default="") or "never",
            records=tuple(chain.from_iterable(each.records for each in files)),
            unread=tuple(chain.from_iterable(each.unread for each in files)),
        )

    def _read(self, path: Path) -> _File:
        change = change_of(path)
        known = self._files.get(str(path))
        if known is not None and known.change == change:
            return known
        count, newest = 0, ""
        records: list[OsvRecord] = []
        unread: list[str] = []
        for name, content in _contents(path):
            count += 1
            try:
                if isinstance(content, str):
                    raise ValueError(content)
                found = records_in(content)
            except ValueError as error:
                unread.append(f"{name}: {error}")
                continue
            newest = max((each.modified[:10] for each in found), default=newest)
            records += [each for each in found if any(self._names.is_listed(one.package) for one in each.affected)]
        if unread and known is not None:
            records += known.records
        return _File(change, count, newest, tuple(records), tuple(unread))


def changes_of(directory: Path) -> list[FileChange]:
    """When each file in a directory was changed; nothing of what cannot be looked at."""
    try:
        return [change_of(path) for path in _paths(directory)]
    except OSError:
        return []


def change_of(path: Path) -> FileChange:
    """When a file was changed. Raises OSError."""
    status = path.lstat()
    return str(path), status.st_mtime_ns, status.st_size


def _paths(directory: Path) -> Iterator[Path]:
    """The files to read, in the order of names. Raises OSError."""
    for path in sorted(directory.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield from _paths(path)
        elif stat.S_ISREG(mode) and path.suffix in {".json", ".zip"}:
            yield path


def _contents(path: Path) -> Iterator[tuple[str, bytes | str]]:
    """(name, content, or why there is none) of a file, or of all in an archive."""
    try:
        if path.suffix == ".zip":
            yield from _members(path)
        else:
            yield str(path), path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else "too large"
    except OSError as error:
        yield str(path), error.strerror or str(error)


def _members(path: Path) -> Iterator[tuple[str, bytes | str]]:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if not member.filename.endswith(".json"):
                    continue
                # What the archive says of a member's size is not trusted.
                with archive.open(member) as file:
                    content = file.read(MAX_FILE_BYTES + 1)
                yield f"{path}:{member.filename}", content if len(content) <= MAX_FILE_BYTES else "too large"
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        yield str(path), f"not an archive that can be read: {error}"
