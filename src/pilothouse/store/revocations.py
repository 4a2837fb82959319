"""What has been revoked, in a file that the workers of this host read themselves.

A revoked key has to stop within a second also while the controller is down. Whoever revokes appends the id of the key
or the tenant here; the workers look at the file's size a few times a second. The gateway uses this too, so it needs
nothing but the standard library.
"""

import contextlib
import os
from pathlib import Path

from pilothouse.store.private_files import unreadable_state

_MAX_BYTES = 1024 * 1024
"""About 30,000 ids. Then the file begins anew: what is in it has long reached the workers by the directory too."""


class RevocationFile:
    """The writers' end."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, id_: str) -> None:
        """Append the id of a key or a tenant. Raises PilothouseError state_unreadable."""
        with unreadable_state(self._path):
            with contextlib.suppress(FileNotFoundError):
                if self._path.stat().st_size > _MAX_BYTES:
                    self._path.unlink()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, id_.encode() + b"\n")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class RevocationReader:
    """A worker's end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        self._rest = b""

    def news(self) -> list[str]:
        """The ids that were noted since the last call. A file that cannot be read has none."""
        try:
            status = self._path.stat()
            if status.st_ino == self._inode and status.st_size == self._offset:
                return []
            with self._path.open("rb") as file:
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._inode, self._offset, self._rest = status.st_ino, 0, b""
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode() for line in whole if line]
