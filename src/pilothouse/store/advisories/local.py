"""What a fleet keeps of advisories on this host: the records it synced, and the waivers that were given by command."""

from pathlib import Path
from typing import TypeVar

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.model.posture import Waiver
from pilothouse.policy.advisories.records import Snapshot
from pilothouse.store.advisories.feed_directory import FileChange, change_of
from pilothouse.store.private_files import read_private, replace_private

_Shape = TypeVar("_Shape")
_SYNCED, _WAIVERS = "synced.json", "waivers.json"


class GivenWaiver(msgspec.Struct, frozen=True, kw_only=True):
    """A waiver with the record of who gave it and when (RFC 3339)."""

    waiver: Waiver
    given_by: str
    given_at: str


class AdvisoryStore:
    """The files under one directory, which need not exist."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def synced(self) -> Snapshot | None:
        """What was synced last; `None` if nothing was.

        Raises:
            PilothouseError: state_unreadable.
        """
        return self._read(_SYNCED, Snapshot)

    def changes(self) -> list[FileChange]:
        """Of each file that there is, when it was changed."""
        paths = [self._directory / name for name in (_SYNCED, _WAIVERS)]
        return [change_of(path) for path in paths if path.exists()]

    def keep(self, snapshot: Snapshot) -> None:
        """Replace what was synced."""
        self._write(_SYNCED, snapshot)

    def waivers(self) -> tuple[GivenWaiver, ...]:
        """The waivers that were given by command, expired ones too."""
        return self._read(_WAIVERS, tuple[GivenWaiver, ...]) or ()

    def keep_waivers(self, waivers: tuple[GivenWaiver, ...]) -> None:
        """Replace them."""
        self._write(_WAIVERS, waivers)

    def _read(self, name: str, shape: type[_Shape]) -> _Shape | None:
        path = self._directory / name
        content = read_private(path)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=shape)
        except msgspec.MsgspecError as error:
            raise PilothouseError("state_unreadable", f"{path} is damaged: {error}") from error

    def _write(self, name: str, value: object) -> None:
        replace_private(self._directory / name, msgspec.json.encode(value))
