"""The operator's own keys, one for each fleet, in the configuration directory: what `chat` and the examples use.

One JSON file for all fleets, mode 0600: `{"fleets": {"default": {"api_key": "ph_..."}}}`. What other programs have
added to it is kept.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import FleetName
from pilothouse.store.private_files import read_private, replace_private, unreadable_state

OVERRIDE_VARIABLE = "PILOTHOUSE_API_KEY"


def operator_key(path: Path, fleet: FleetName, env: Mapping[str, str]) -> str | None:
    """The key to call this fleet with: the environment's, else the file's; `None` when there is neither.

    Raises:
        PilothouseError: state_unreadable.
    """
    return env.get(OVERRIDE_VARIABLE) or stored_key(path, fleet)


def stored_key(path: Path, fleet: FleetName) -> str | None:
    """The key in the file.

    Raises:
        PilothouseError: state_unreadable.
    """
    entry = _fleets(_load(path)).get(fleet)
    key = entry.get("api_key") if isinstance(entry, dict) else None
    return key if isinstance(key, str) and key else None


def store_key(path: Path, fleet: FleetName, key: str) -> None:
    """Put the key of one fleet into the file; the others' stay.

    Raises:
        PilothouseError: state_unreadable.
    """
    with _locked(path):
        content = _load(path)
        content["fleets"] = {**_fleets(content), fleet: {"api_key": key}}
        replace_private(path, msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def _load(path: Path) -> dict[str, Any]:
    raw = read_private(path)
    if raw is None or not raw.strip():
        return {}
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise PilothouseError(
            "state_unreadable", f"{path} is not a credentials file: {error}", hint="Correct it, or move it away."
        ) from error


def _fleets(content: dict[str, Any]) -> dict[str, Any]:
    fleets = content.get("fleets")
    return fleets if isinstance(fleets, dict) else {}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One writer at a time: two fleets that start together both keep their keys."""
    with unreadable_state(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)
