"""Files whose checksum is known: hashed once, then recognised by size and time of change.

What was found is kept in a stamp beside the cache, so that a start does not read 100 MB again, and a file that was
changed since is noticed and hashed anew.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.placement.weights.progress import ProgressSink

_PIECE = 1024 * 1024


class _Stamp(msgspec.Struct, frozen=True, kw_only=True):
    size: int
    changed_ns: int
    sha256: str


def check(path: Path, pinned: str | None, *, stamps: Path, progress: ProgressSink) -> None:
    """Make sure that `path` has the pinned sha256 (hexadecimal), if one is pinned.

    Raises:
        PilothouseError: checksum_mismatch, with both sums; weights_not_found when it cannot be read.
    """
    if pinned is None:
        return
    try:
        actual = _known_sum(path, stamps) or _hash(path, stamps, progress)
    except OSError as error:
        raise PilothouseError("weights_not_found", f"{path} cannot be read: {error.strerror}") from error
    require(actual, pinned, path)


def require(actual: str, pinned: str | None, what: object) -> None:
    """Raise checksum_mismatch when a sum is not the pinned one."""
    if pinned is not None and actual != pinned.lower():
        message = f"{what} has the sha256 {actual}, but {pinned} is pinned"
        raise PilothouseError("checksum_mismatch", message)


def _stamp_path(path: Path, stamps: Path) -> Path:
    return stamps / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()}.json"


def _known_sum(path: Path, stamps: Path) -> str | None:
    status = path.stat()
    try:
        stamp = msgspec.json.decode(_stamp_path(path, stamps).read_bytes(), type=_Stamp)
    except (OSError, msgspec.MsgspecError):
        return None
    same = stamp.size == status.st_size and stamp.changed_ns == status.st_mtime_ns
    return stamp.sha256 if same else None


def _hash(path: Path, stamps: Path, progress: ProgressSink) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        done = 0
        while piece := file.read(_PIECE):
            digest.update(piece)
            done += len(piece)
            progress.update("check", done, total)
    remember(path, digest.hexdigest(), stamps=stamps)
    return digest.hexdigest()


def remember(path: Path, sha256: str, *, stamps: Path) -> None:
    """Note the sum of a file that was just read or written."""
    status = path.stat()
    stamp = _Stamp(size=status.st_size, changed_ns=status.st_mtime_ns, sha256=sha256)
    stamps.mkdir(parents=True, exist_ok=True)
    with whole_file(_stamp_path(path, stamps)) as file:
        file.write(msgspec.json.encode(stamp))


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears at `path` whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
