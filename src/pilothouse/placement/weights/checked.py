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
from typing import IO, Self

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.placement.weights.progress import ProgressSink

PIECE = 1024 * 1024


class _Stamp(msgspec.Struct, frozen=True, kw_only=True):
    size: int
    changed_ns: int
    sha256: str

    @classmethod
    def of(cls, status: os.stat_result, sha256: str) -> Self:
        return cls(size=status.st_size, changed_ns=status.st_mtime_ns, sha256=sha256)

    def fits(self, status: os.stat_result) -> bool:
        return self.size == status.st_size and self.changed_ns == status.st_mtime_ns


def check(path: Path, pinned: str, *, stamps: Path, progress: ProgressSink) -> None:
    """Make sure that `path` has the pinned sha256 (hexadecimal).

    Raises:
        PilothouseError: checksum_mismatch, with both sums; weights_not_found when it cannot be read.
    """
    try:
        stamp = _read_stamp(path, stamps)
        if stamp is None or not stamp.fits(path.stat()):
            stamp = _hash(path, progress)
            _write_stamp(path, stamp, stamps)
    except OSError as error:
        raise PilothouseError("weights_not_found", f"{path} cannot be read: {error.strerror}") from error
    require(stamp.sha256, pinned, path)


def intact_sum(path: Path, *, stamps: Path, progress: ProgressSink) -> str | None:
    """The sha256 of a file that this cache made; `None` when it is not there or is not what it was."""
    stamp = _read_stamp(path, stamps)
    if stamp is None or not path.is_file():
        return None
    if not stamp.fits(path.stat()):
        now = _hash(path, progress)
        if now.sha256 != stamp.sha256:
            return None
        _write_stamp(path, now, stamps)
    return stamp.sha256


def require(actual: str, pinned: str | None, what: object) -> None:
    """Raise checksum_mismatch when a sum is not the pinned one."""
    if pinned is not None and actual != pinned.lower():
        message = f"{what} has the sha256 {actual}, but {pinned} is pinned"
        raise PilothouseError("checksum_mismatch", message)


def remember(path: Path, sha256: str, status: os.stat_result, *, stamps: Path) -> None:
    """Note the sum that a file had when its status was this."""
    _write_stamp(path, _Stamp.of(status, sha256), stamps)


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


def _stamp_path(path: Path, stamps: Path) -> Path:
    return stamps / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()}.json"


def _read_stamp(path: Path, stamps: Path) -> _Stamp | None:
    try:
        return msgspec.json.decode(_stamp_path(path, stamps).read_bytes(), type=_Stamp)
    except (OSError, msgspec.MsgspecError):
        return None


def _write_stamp(path: Path, stamp: _Stamp, stamps: Path) -> None:
    with whole_file(_stamp_path(path, stamps)) as file:
        file.write(msgspec.json.encode(stamp))


def _hash(path: Path, progress: ProgressSink) -> _Stamp:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        # A write during the reading changes the time, and a stamp with that of before then fits no more.
        before = os.fstat(file.fileno())
        done = 0
        while piece := file.read(PIECE):
            digest.update(piece)
            done += len(piece)
            progress.update("check", done, before.st_size)
    return _Stamp.of(before, digest.hexdigest())
