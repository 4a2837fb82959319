"""What the other workers of this host have in flight on each replica, read from their boards."""

import mmap
import os
import re
from pathlib import Path

from pilothouse.model.ids import ReplicaId
from pilothouse.telemetry import catalogue
from pilothouse.telemetry.board_layout import (
    BOARD_BYTES,
    DIRECTORY_BYTES,
    HEADER_BYTES,
    DamagedBoard,
    Word,
    check_header,
    records,
)

SHARE_EVERY_S = 0.02
"""How old the other workers' counts may be, twice over: about one token's time. In that time a worker only knows what
it sent itself, so two workers may send a request each to the same replica, not a herd."""

_BOARD_NAME = re.compile(r"worker-(\d+)\.board")


class _OtherBoard:
    """One other worker's file, mapped, with the places of its gauges."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            memory = memoryview(mmap.mmap(fd, BOARD_BYTES, access=mmap.ACCESS_READ))
        finally:
            os.close(fd)
        self._words = memory[:HEADER_BYTES].cast("Q")
        self._directory = memory[HEADER_BYTES : HEADER_BYTES + DIRECTORY_BYTES]
        self._slots = memory[HEADER_BYTES + DIRECTORY_BYTES : BOARD_BYTES].cast("d")
        self._known: tuple[int, int] | None = None
        self._places: dict[str, int] = {}

    def add_to(self, loads: dict[str, float]) -> None:
        """Add what this worker has in flight, by replica."""
        known = (self._words[Word.PID], self._words[Word.SERIES])
        if known != self._known:
            self._places = self._find_places()
            self._known = known
        for replica, slot in self._places.items():
            loads[replica] = loads.get(replica, 0.0) + self._slots[slot]

    def _find_places(self) -> dict[str, int]:
        try:
            check_header(self._words)
            return {
                dict(record.labels)["replica"]: record.slot
                for record, _ in records(self._directory, self._words[Word.SERIES])
                if record.name == catalogue.IN_FLIGHT_TOKENS.name
            }
        except (DamagedBoard, KeyError):
            return {}


class HostLoad:
    """The boards beside one's own."""

    def __init__(self, directory: Path, own_index: int) -> None:
        self._directory = directory
        self._own_index = own_index
        self._boards: dict[int, _OtherBoard] = {}

    def look_around(self) -> None:
        """See which other workers there are, or were: the gauges of a dead one are zero."""
        for path in self._directory.iterdir():
            found = _BOARD_NAME.fullmatch(path.name)
            if found is None or int(found[1]) == self._own_index or int(found[1]) in self._boards:
                continue
            try:
                self._boards[int(found[1])] = _OtherBoard(path)
            except (OSError, ValueError):
                continue  # not whole yet; it is looked at again

    @property
    def alone(self) -> bool:
        """There is no other board."""
        return not self._boards

    def elsewhere(self) -> dict[ReplicaId, float]:
        """Tokens in flight by replica, over all other workers."""
        loads: dict[str, float] = {}
        for board in self._boards.values():
            board.add_to(loads)
        return {ReplicaId(name): tokens for name, tokens in loads.items()}
