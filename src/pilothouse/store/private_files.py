"""Small files that hold secrets: mode 0600, never seen half written, made once even by two processes at a time."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pilothouse.model.errors import PilothouseError


def read_private(path: Path) -> bytes | None:
    """The file's content, `None` if there is no such file. A mode that lets others read it is tightened.

    Raises:
        PilothouseError: state_unreadable.
    """
    with unreadable_state(path), contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.geteuid():
            os.fchmod(file.fileno(), 0o600)
        return file.read()
    return None


def replace_private(path: Path, content: bytes) -> None:
    """Write the file, replacing what was there in one step.

    Raises:
        PilothouseError: state_unreadable.
    """
    with unreadable_state(path), _written_aside(path, content) as aside:
        aside.replace(path)


def create_private(path: Path, make: Callable[[], bytes]) -> bytes:
    """The file's content, made now if there is no such file. Of two processes that make it, both get the winner's.

    Raises:
        PilothouseError: state_unreadable.
    """
    found = read_private(path)
    while found is None:
        with unreadable_state(path), _written_aside(path, make()) as aside, contextlib.suppress(FileExistsError):
            # A link, unlike a rename, does not replace what another process has made meanwhile.
            os.link(aside, path)
        found = read_private(path)
    return found


@contextlib.contextmanager
def unreadable_state(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a file into a message about it.

    Raises:
        PilothouseError: state_unreadable, for any OSError but a missing file that the caller handles.
    """
    try:
        yield
    except OSError as error:
        raise PilothouseError(
            "state_unreadable", f"{path}: {error.strerror or error}", hint=_advice(path, error)
        ) from error


def _advice(path: Path, error: OSError) -> str | None:
    parent = path.parent
    if isinstance(error, PermissionError):
        for each in (path, parent):
            with contextlib.suppress(OSError):
                owner = each.stat().st_uid
                if owner != os.geteuid():
                    return f"{each} belongs to user id {owner}: run as that user, or change its owner."
        return f"Give yourself write access to {parent} (it should be mode 0700)."
    if isinstance(error, NotADirectoryError | FileNotFoundError):
        return f"Create the directory {parent}, with mode 0700."
    return None


@contextlib.contextmanager
def _written_aside(path: Path, content: bytes) -> Iterator[Path]:
    """A complete file of the same directory, removed afterwards unless it was moved."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    aside = Path(name)
    try:
        with open(descriptor, "wb") as file:  # mkstemp has set mode 0600
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield aside
    finally:
        aside.unlink(missing_ok=True)
