"""The worker's rows on their way to the ledger: written at once, synced to the disk ten times a second off the loop."""

import asyncio
import logging
from collections import deque

from pilothouse.model.errors import PilothouseError
from pilothouse.store.spool import SYNC_INTERVAL_S, SpoolWriter

MAX_KEPT_ROWS = 50_000
"""Rows kept in memory while the disk takes none: about 20 MB, minutes of a busy worker."""

log = logging.getLogger("pilothouse.gateway")


class TurnLog:
    """One worker's. A disk that is full stops nobody's answers: rows are kept until it takes them again."""

    def __init__(self, writer: SpoolWriter) -> None:
        self._writer = writer
        self._kept: deque[tuple[bytes, tuple[object, ...]]] = deque()
        self.lost_rows = 0

    def write(self, names: bytes, numbers: tuple[object, ...]) -> None:
        """Write a row (`SpoolWriter.write`). Then it survives the process, unless the disk did not take it."""
        if self._kept:
            self._keep(names, numbers)
            return
        try:
            self._writer.write(names, numbers)
        except PilothouseError as error:
            log.error("the spool does not take rows", extra={"reason": error.message})
            self._keep(names, numbers)

    async def run(self) -> None:
        """Sync what was written, until cancelled."""
        while True:
            await asyncio.sleep(SYNC_INTERVAL_S)
            self._write_kept()
            sync = self._writer.begin_sync()
            if sync is not None:
                try:
                    await asyncio.to_thread(sync)
                except PilothouseError as error:
                    log.error("the spool could not be synced", extra={"reason": error.message})

    def close(self) -> None:
        """The worker ends."""
        self._write_kept()
        if self._kept:
            log.critical("rows of the ledger are lost", extra={"rows": len(self._kept)})
        try:
            self._writer.close()
        except PilothouseError as error:
            log.error("the spool could not be synced", extra={"reason": error.message})

    def _keep(self, names: bytes, numbers: tuple[object, ...]) -> None:
        if len(self._kept) >= MAX_KEPT_ROWS:
            self.lost_rows += 1
            if self.lost_rows == 1:
                log.critical("rows of the ledger are lost: the spool has taken none for too long")
            return
        self._kept.append((names, numbers))

    def _write_kept(self) -> None:
        while self._kept:
            try:
                self._writer.write(*self._kept[0])
            except PilothouseError:
                return
            self._kept.popleft()
