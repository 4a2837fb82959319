"""One line for each request: who asked for what, which replica answered, how it ended, how long it took.

Never a prompt, an answer, a key or a client's address. A share of the requests that went well is enough to see what is
usual; all that failed are written down.
"""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import KeyId, RequestId, TenantId
from pilothouse.model.requests import Usage
from pilothouse.model.units import SECOND, WallNs
from pilothouse.policy.draw import Draws
from pilothouse.telemetry.event_log import EventLog
from pilothouse.telemetry.logs import timestamp

if TYPE_CHECKING:
    from pilothouse.model.fleet import KeyView

_MILLION = 1_000_000
_FIRST_ERROR = 400


class RequestEnded(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="request_ended", tag_field="event"
):
    """One request. Times in milliseconds; `first_token_ms` is for streams, `overhead_ms` what the gateway took of it.

    `client_request_id` is the client's own, if it gave one; `replica` is the alias that clients may see.
    """

    ts: str
    request_id: str
    route: str
    status: int
    reason: str
    client_request_id: str | None = None
    model: str | None = None
    tenant: TenantId | None = None
    key: KeyId | None = None
    replica: str | None = None
    attempts: int = 0
    stream: bool = False
    duration_ms: float = 0.0
    overhead_ms: float | None = None
    first_token_ms: float | None = None
    request_bytes: int = 0
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


class AccessLog:
    """Writes the lines of one worker. Whoever owns it calls `flush` on a timer, and `close` at the end.

    Raises PilothouseError `state_unreadable` if the file cannot be opened.
    """

    def __init__(self, path: Path, sample: float, draws: Draws) -> None:
        try:
            # Appended to, so that it can be put aside and cut while it is written (`cli/log_rotation.py`).
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise PilothouseError("state_unreadable", f"{path}: {error.strerror}") from error
        self._log = EventLog(self._fd)
        self._draws = draws
        self._taken = round(sample * _MILLION)
        self._second = -1
        self._second_text = ""
        self.flush = self._log.flush

    def takes(self, request: RequestId, status: int) -> bool:
        """Whether this request is written down: all that failed, of the others a share drawn by their ids."""
        if status >= _FIRST_ERROR or self._taken == _MILLION:
            return True
        return self._draws.below(_MILLION, request, "access log") < self._taken

    def write(
        self,
        *,
        request_id: RequestId,
        client_request_id: bytes | None,
        route: str,
        status: int,
        reason: str,
        model: str,
        key: "KeyView | None",
        duration_ns: int,
        request_bytes: int,
        replica: str | None = None,
        attempts: int = 0,
        stream: bool = False,
        overhead_ns: int = 0,
        first_token_ns: int = 0,
        usage: Usage | None = None,
    ) -> None:
        """Take a request down."""
        self._log.write(
            RequestEnded(
                ts=self._now(),
                request_id=request_id,
                client_request_id=client_request_id.decode("latin-1")[:128] if client_request_id else None,
                route=route,
                status=status,
                reason=reason,
                model=model or None,
                tenant=key.tenant if key is not None else None,
                key=key.id if key is not None else None,
                replica=replica,
                attempts=attempts,
                stream=stream,
                duration_ms=_milliseconds(duration_ns),
                overhead_ms=_milliseconds(overhead_ns) if overhead_ns else None,
                first_token_ms=_milliseconds(first_token_ns) if first_token_ns else None,
                request_bytes=request_bytes,
                input_tokens=usage.input_tokens if usage is not None else None,
                cached_tokens=usage.cached_tokens if usage is not None else None,
                output_tokens=usage.output_tokens if usage is not None else None,
            )
        )

    def close(self) -> None:
        """Write what is left."""
        self._log.flush()
        os.close(self._fd)

    def _now(self) -> str:
        """The time of day. Its text is made once a second, for a line would otherwise cost twice as much."""
        now = time.time_ns()
        second, rest = divmod(now, SECOND)
        if second != self._second:
            self._second = second
            self._second_text = timestamp(WallNs(second * SECOND))[:-4]
        return f"{self._second_text}{rest // 1_000_000:03}Z"


def _milliseconds(duration_ns: int) -> float:
    return duration_ns // 1000 / 1000
