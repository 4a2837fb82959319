"""Keep logs from filling the disk.

The processes of a fleet write through descriptors they were started with, for months maybe, so a log cannot be moved
away under them: it is copied to NAME.log.1 and cut to nothing, as logrotate's `copytruncate` does. They append, so
they go on at the start. Lines written between copy and cut, some microseconds, are lost.
"""

import os
import shutil
from pathlib import Path

MAX_LOG_BYTES = 16 * 1024 * 1024


def rotate_large_logs(directory: Path, limit: int = MAX_LOG_BYTES) -> None:
    """Put aside every log in the directory that is larger than `limit` bytes. The one put aside before is replaced.

    Raises:
        OSError: the disk is full, or a file is not ours.
    """
    for log in directory.glob("*.log"):
        if log.stat().st_size > limit:
            aside = log.with_name(log.name + ".1")
            aside.unlink(missing_ok=True)
            with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
                with log.open("rb") as original:
                    shutil.copyfileobj(original, copy)
                os.truncate(log, 0)
