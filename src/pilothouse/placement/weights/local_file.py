"""`file:PATH`: weights that are already here."""

import difflib
import os
from pathlib import Path

from pilothouse.config.sources import FileSource
from pilothouse.model.errors import PilothouseError
from pilothouse.placement.weights import cache, checked
from pilothouse.placement.weights.progress import ProgressSink, in_thread


async def find(source: FileSource, sha256: str | None, *, cache_dir: Path, progress: ProgressSink) -> Path:
    """The file or directory itself.

    Raises:
        PilothouseError: weights_not_found, checksum_mismatch, or config_invalid for the sum of a directory.
    """
    path = source.path
    if not path.exists():
        raise PilothouseError("weights_not_found", f"{path} does not exist{_near(path)}")
    if not os.access(path, os.R_OK):
        raise PilothouseError("weights_not_found", f"{path} may not be read by this user")
    if path.is_dir():
        if sha256 is not None:
            message = f"{path} is a directory, and a sha256 is that of one file"
            raise PilothouseError("config_invalid", message, hint="Name the file, or take weights.sha256 away.")
        return path
    if sha256 is not None:
        stamps = cache.stamps(cache_dir)
        await in_thread(lambda sink: checked.check(path, sha256, stamps=stamps, progress=sink), progress)
    return path


def _near(path: Path) -> str:
    try:
        near = difflib.get_close_matches(path.name, os.listdir(path.parent), n=1)
    except OSError:
        return f"; nor does the directory {path.parent}" if not path.parent.exists() else ""
    return f" (did you mean '{path.parent / near[0]}'?)" if near else ""
