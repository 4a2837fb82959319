"""Scripts of events and the effects they must have, for tests of machines.

with Playbook(machine) as play:
    play.given(ReplicaRequested(at=at(0)))
    play.expect(PublishState(state=ReplicaState.PLACING), PlaceReplica())
    play.given(PlacementFailed(at=at(1), code="x", message="y", permanent=True))
    play.expect(ReleasePlacement(), Matching(PublishState, state=ReplicaState.FAILED))
"""

import difflib
from types import TracebackType
from typing import Any, Self

import msgspec

from pilothouse.model.effects import Effect
from pilothouse.model.events import Event
from pilothouse.policy.machine import Machine


class Matching:
    """Stands in an expectation for any effect of a kind whose given fields are these; the other fields do not matter.

    A text is matched where it occurs in the field.
    """

    def __init__(self, kind: type[Effect], **fields: Any) -> None:
        unknown = set(fields) - set(kind.__struct_fields__)
        if unknown:
            raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
        self._kind = kind
        self._fields = fields

    def matches(self, effect: Effect) -> bool:
        """Whether `effect` is such a one."""
        return type(effect) is self._kind and all(
            wanted in found if isinstance(wanted, str) and isinstance(found, str) else wanted == found
            for name, wanted in self._fields.items()
            for found in (getattr(effect, name),)
        )

    def __str__(self) -> str:
        fields = [f"{name}~{value!r}" for name, value in self._fields.items()]
        return f"{self._kind.__name__}({', '.join([*fields, '...'])})"


class Playbook:
    """One machine and one script. Use it in a `with`, so that no script ends unasserted.

    Effects have to come exactly as expected, in order; an event without `expect` after it must have none. A failure
    is an AssertionError that shows the script so far as a diff. The machine's invariants are checked after every event.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._open = False
        self._script: list[str] = []
        self._pending: tuple[Effect, ...] = ()

    def __enter__(self) -> Self:
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        if error is None:
            self._compare(())

    def given(self, event: Event) -> Self:
        """This happens. All effects of what happened before have to have been expected."""
        if not self._open:
            raise RuntimeError("a Playbook asserts nothing outside its `with` block")
        self._compare(())
        self._script.append(f">> {_text(event)}")
        self._pending = self._machine.handle(event)
        self._machine.invariants()
        return self

    def expect(self, *effects: Effect | Matching) -> Self:
        """These are all the effects of the event that was just given."""
        if not self._open:
            raise RuntimeError("a Playbook asserts nothing outside its `with` block")
        self._compare(effects)
        return self

    def _compare(self, expected: tuple[Effect | Matching, ...]) -> None:
        found, self._pending = self._pending, ()
        agree = len(expected) == len(found) and all(
            wanted.matches(effect) if isinstance(wanted, Matching) else wanted == effect
            for wanted, effect in zip(expected, found, strict=True)
        )
        if not agree:
            raise AssertionError(self._difference(expected, found))
        self._script += [f"<< {_text(effect)}" for effect in found]

    def _difference(self, expected: tuple[Effect | Matching, ...], found: tuple[Effect, ...]) -> str:
        wanted_lines, found_lines = [], []
        for index in range(max(len(expected), len(found))):
            wanted = expected[index] if index < len(expected) else None
            effect = found[index] if index < len(found) else None
            fits = isinstance(wanted, Matching) and effect is not None and wanted.matches(effect)
            if wanted is not None:
                wanted_lines.append(f"<< {_text(effect) if fits else _text(wanted)}")  # type: ignore[arg-type]
            if effect is not None:
                found_lines.append(f"<< {_text(effect)}")
        diff = difflib.ndiff(wanted_lines, found_lines)
        return "\n".join(
            ["the machine's effects are not the expected ones (- expected, + found):"]
            + [f"  {line}" for line in self._script]
            + [line.rstrip("\n") for line in diff]
        )


def _text(value: Event | Effect | Matching) -> str:
    """On one line, without fields that have their default."""
    if isinstance(value, Matching):
        return str(value)
    info = msgspec.structs.fields(value)
    shown = [
        f"{field.encode_name}={getattr(value, field.name)!r}"
        for field in info
        if getattr(value, field.name) != field.default
    ]
    return f"{type(value).__name__}({', '.join(shown)})"
