"""A directory of advisory files that the operator mirrors: JSON of any shape we read, and archives of it."""

import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from pilothouse.model.errors import PilothouseError
from pilothouse.policy.advisories.packages import PackageNames
from pilothouse.policy.advisories.records import OsvRecord, Snapshot
from pilothouse.wire.advisories.any_shape import records_in

MAX_FILE_BYTES = 32 * 1024 * 1024  # as OSV caps its own answers
MAX_FILES = 500_000  # GitHub's whole database has about 300,000


FileChange: TypeAlias = tuple[str, int, int]
"""A file's path, when it was changed in nanoseconds, and its size."""


def read_listed(directory: Path, names: PackageNames) -> Snapshot:
    """What a directory says of the packages that `names` lists, dated by the newest change to any record of it.

    Read are all `.json` files, and those in `.zip` files. Links are not followed.

    Raises:
        PilothouseError: feed_unreadable when the directory itself cannot be read, or has too many files.
    """
    records: list[OsvRecord] = []
    unread: list[str] = []
    newest = ""
    try:
        for count, (name, content) in enumerate(_files(directory)):
            if count >= MAX_FILES:
                raise PilothouseError("feed_unreadable", f"{directory} has more than {MAX_FILES} files")
            try:
                if isinstance(content, str):
                    raise ValueError(content)
                found = records_in(content)
            except ValueError as error:
                unread.append(f"{name}: {error}")
                continue
            newest = max(newest, *(each.modified[:10] for each in found)) if found else newest
            records += [each for each in found if any(names.is_listed(one.package) for one in each.affected)]
    except OSError as error:
        raise PilothouseError("feed_unreadable", f"{directory} cannot be read: {error.strerror or error}") from error
    return Snapshot(date=newest or "never", records=tuple(records), unread=tuple(unread))


def changes_of(directory: Path) -> list[FileChange]:
    """When each file in a directory was changed; nothing of what cannot be looked at."""
    try:
        return [change_of(path) for path in sorted(directory.rglob("*")) if path.suffix in {".json", ".zip"}]
    except OSError:
        return []


def change_of(path: Path) -> FileChange:
    """When a file was changed. Raises OSError."""
    status = path.lstat()
    return str(path), status.st_mtime_ns, status.st_size


def _files(directory: Path) -> Iterator[tuple[str, bytes | str]]:
    """(name, content, or why there is none) of every file, in the order of names."""
    for path in sorted(directory.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield from _files(path)
        elif not stat.S_ISREG(mode):
            continue
        elif path.suffix == ".json":
            yield str(path), path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else "too large"
        elif path.suffix == ".zip":
            yield from _members(path)


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
