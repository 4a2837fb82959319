"""The token of the admin API, in the fleet's state directory: who may read that file may administer the fleet."""

import secrets
from pathlib import Path

from pilothouse.model.errors import PilothouseError
from pilothouse.store.private_files import create_private, read_private

_TOKEN_BYTES = 32


def ensure_admin_token(path: Path) -> str:
    """The fleet's admin token, made on first use.

    Raises:
        PilothouseError: state_unreadable, also when the file is empty.
    """
    return _text(path, create_private(path, lambda: f"{secrets.token_urlsafe(_TOKEN_BYTES)}\n".encode()))


def read_admin_token(path: Path) -> str | None:
    """The token, `None` when the fleet has never been started.

    Raises:
        PilothouseError: state_unreadable.
    """
    content = read_private(path)
    return None if content is None else _text(path, content)


def _text(path: Path, content: bytes) -> str:
    try:
        token = content.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token:
        raise PilothouseError(
            "state_unreadable", f"{path} holds no token", hint="Delete it: the fleet makes a new one when it starts."
        )
    return token
