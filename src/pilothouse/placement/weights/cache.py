"""The cache on disk: one fetch of a source at a time over all processes, in a scratch directory that always goes away.

pypi/PACKAGE-VERSION/...   files out of wheels        hub/...      where the hub's library has put what
checked/...                stamps of checksums        scratch/...  downloads under way, each with its lock
"""

import asyncio
import contextlib
import errno
import fcntl
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from pilothouse.model.errors import PilothouseError

_LOOK_EVERY_S = 0.1
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


def stamps(cache_dir: Path) -> Path:
    """Where checksums are kept."""
    return cache_dir / "checked"


@contextlib.asynccontextmanager
async def alone(cache_dir: Path, name: str) -> AsyncIterator[Path]:
    """An empty scratch directory for the fetch of this name, when no other process has one for it.

    Whoever waits should look again whether the work is done. What a killed fetch, of whatever name, left is removed.
    """
    home = cache_dir / "scratch"
    home.mkdir(parents=True, exist_ok=True)
    with (home / f"{name}.lock").open("wb") as lock:
        while not _try_lock(lock.fileno()):  # noqa: ASYNC110, other processes hold it, and flock has no event
            await asyncio.sleep(_LOOK_EVERY_S)
        _sweep(home)
        scratch = home / name
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def disk_errors(cache_dir: Path) -> Iterator[None]:
    """Tell of a full disk, or of a cache that cannot be written, in words."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise no_space(cache_dir) from error
        raise PilothouseError(
            "state_unreadable", f"the cache {cache_dir} cannot be used: {error.strerror or error}"
        ) from error


def require_space(directory: Path, needed: int) -> None:
    """See that the disk has room for so many bytes.

    Raises:
        PilothouseError: not_enough_disk.
    """
    if shutil.disk_usage(directory).free < needed:
        raise no_space(directory, needed)


def no_space(directory: Path, needed: int | None = None) -> PilothouseError:
    """The error that says how much room there is, and how much was needed."""
    free = shutil.disk_usage(directory).free
    need = "the weights do not fit" if needed is None else f"{needed / 1e6:,.0f} MB are needed"
    return PilothouseError("not_enough_disk", f"{need}, and the disk of {directory} has {free / 1e6:,.0f} MB free")


def _sweep(home: Path) -> None:
    for scratch in home.iterdir():
        if not scratch.is_dir():
            continue
        with contextlib.suppress(OSError), (home / f"{scratch.name}.lock").open("wb") as lock:
            if _try_lock(lock.fileno()):
                shutil.rmtree(scratch, ignore_errors=True)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
