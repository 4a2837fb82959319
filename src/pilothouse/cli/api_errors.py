"""An API's refusal as the command line says it."""

import msgspec

from pilothouse.cli.output import CommandError
from pilothouse.model.errors import ERRORS, PilothouseError


class ErrorObject(msgspec.Struct, frozen=True):
    """What OpenAI-compatible servers put under `error`; engines leave parts out, and some send numbers as codes."""

    message: str = ""
    code: str | int | None = None
    type: str | None = None

    @property
    def label(self) -> str:
        """What to count or search it by: the code, else the type."""
        return str(self.code or self.type or "error")

    def as_exception(self) -> PilothouseError | CommandError:
        """What a command raises for it: with our hint if the code is ours."""
        if self.code in ERRORS:
            return PilothouseError(str(self.code), self.message)
        return CommandError(f"{self.message or 'the server refused'} ({self.label})")


class _Body(msgspec.Struct):
    error: ErrorObject | str | None = None
    message: str | None = None


def error_object(body: bytes, status: int | None = None) -> ErrorObject | None:
    """The error in a body or an event; with a status there always is one, since the status itself says so."""
    try:
        decoded = msgspec.json.decode(body, type=_Body)
    except msgspec.MsgspecError:
        decoded = _Body()
    found = ErrorObject(message=decoded.error) if isinstance(decoded.error, str) else decoded.error
    if found is None and status is not None:
        found = ErrorObject(message=decoded.message or f"the server answered with status {status}")
    if found is not None and found.code is None and found.type is None and status is not None:
        return ErrorObject(message=found.message, code=f"http_{status}")
    return found
