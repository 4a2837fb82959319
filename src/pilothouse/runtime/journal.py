"""The journal: every event that machines were given and the effects they answered with, one JSON object a line.

Events and effects carry no secrets and no text of requests, so neither does a journal.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from pilothouse.model.effects import AnyEffect, Effect
from pilothouse.model.events import AnyEvent, Event
from pilothouse.model.units import SECOND


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one machine."""

    machine: str
    event: AnyEvent
    effects: tuple[AnyEffect, ...]

    def __str__(self) -> str:
        done = ", ".join(_words(effect) for effect in self.effects) or "nothing"
        return f"{self.event.at / SECOND:.3f} s {self.machine}: {_words(self.event)} -> {done}"


class Journal:
    """The last `capacity` entries. A bounded ring: a controller keeps one for as long as it lives."""

    def __init__(self, capacity: int = 4096) -> None:
        self._entries: deque[JournalEntry] = deque(maxlen=capacity)
        self._dropped = 0

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """What is kept, oldest first."""
        return tuple(self._entries)

    @property
    def dropped(self) -> int:
        """How many entries had to go. Only a journal that has dropped none can be replayed from its beginning."""
        return self._dropped

    def record(self, machine: str, event: Event, effects: tuple[Effect, ...]) -> None:
        """Keep one step."""
        if len(self._entries) == self._entries.maxlen:
            self._dropped += 1
        # Event and Effect are the open bases; the unions that entries are decoded with have every one of them.
        self._entries.append(JournalEntry(machine=machine, event=event, effects=effects))  # type: ignore[arg-type]

    def story(self, machine: str, last: int = 20) -> str:
        """The last steps of one machine, one line each."""
        lines = [str(entry) for entry in self._entries if entry.machine == machine]
        return "\n".join(lines[-last:])


def encode(entries: Iterable[JournalEntry]) -> bytes:
    """Entries as JSON lines."""
    return msgspec.json.Encoder().encode_lines(list(entries))


def decode(lines: bytes) -> tuple[JournalEntry, ...]:
    """JSON lines as entries. Raises msgspec.MsgspecError for a line that is not one."""
    return tuple(msgspec.json.Decoder(JournalEntry).decode_lines(lines))


def _words(value: Event | Effect) -> str:
    """The name, and the fields that have something to say."""
    said = {
        name: field
        for name in value.__struct_fields__
        if name != "at" and (field := getattr(value, name)) not in (None, "", ())
    }
    fields = " ".join(f"{name}={_short(field)}" for name, field in said.items())
    return f"{type(value).__name__}({fields})" if fields else type(value).__name__


def _short(field: object) -> str:
    return str(field) if not isinstance(field, msgspec.Struct) else msgspec.json.encode(field).decode()
