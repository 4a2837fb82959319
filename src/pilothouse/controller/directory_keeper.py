"""Keeps the workers' directory of tenants and keys the same as the database.

The whole directory is read once. From then on only what the audit log names is read again, so that a change to one key
of a hundred thousand costs a millisecond. Changes by others (a command while no controller ran, the controller of
another host) are seen by the log's last id, twice a second.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path

from pilothouse.model.errors import PilothouseError
from pilothouse.model.tenants import DirectoryChange, TenantDirectory
from pilothouse.store.directory_file import write_directory
from pilothouse.store.tenants import TenantStore

POLL_S = 0.5
"""How late a change by somebody else is seen: a revoked key has to stop within a second."""

STORE_EVERY_S = 10.0
"""How old the file may be; what a worker misses by it comes from the changes that are kept."""

MAX_KEPT_CHANGES = 256

_logger = logging.getLogger(__name__)


class DirectoryKeeper:
    """One controller's. `publish` is called with each change, in order."""

    def __init__(self, store: TenantStore, path: Path, publish: Callable[[DirectoryChange], None]) -> None:
        self._store = store
        self._path = path
        self._publish = publish
        self._refreshing = asyncio.Lock()
        self._changes: deque[DirectoryChange] = deque(maxlen=MAX_KEPT_CHANGES)
        self.version = 0
        self.stored_version = -1

    async def start(self) -> TenantDirectory:
        """Read all there is and write the file. Raises PilothouseError state_unreadable."""
        directory = await asyncio.to_thread(self._write_file)
        self.version = directory.version
        return directory

    async def refresh(self) -> None:
        """See what has changed and tell the workers. Raises PilothouseError state_unreadable."""
        async with self._refreshing:
            change = await asyncio.to_thread(self._store.changes_since, self.version)
            if change is not None:
                self.version = change.version
                self._changes.append(change)
                self._publish(change)

    def since(self, version: int) -> list[DirectoryChange] | None:
        """What a worker at this version has missed; `None` if it has to read the file."""
        if version == self.version:
            return []
        missed = [change for change in self._changes if change.version > version]
        return missed if missed and missed[0].base <= version else None

    async def run(self) -> None:
        """Go on until cancelled."""
        loop = asyncio.get_running_loop()
        stored_at = loop.time()
        is_away = False
        while True:
            await asyncio.sleep(POLL_S)
            try:
                if await asyncio.to_thread(self._store.version) != self.version:
                    await self.refresh()
                unstored = sum(change.version > self.stored_version for change in self._changes)
                if unstored and (loop.time() - stored_at >= STORE_EVERY_S or unstored > MAX_KEPT_CHANGES // 2):
                    await asyncio.to_thread(self._write_file)
                    stored_at = loop.time()
            except PilothouseError as error:
                if not is_away:
                    _logger.error("the tenants cannot be read", extra={"reason": error.message})
                is_away = True
            else:
                if is_away:
                    _logger.warning("the tenants can be read again")
                is_away = False

    def _write_file(self) -> TenantDirectory:
        directory = self._store.directory()
        write_directory(self._path, directory)
        self.stored_version = directory.version
        return directory
