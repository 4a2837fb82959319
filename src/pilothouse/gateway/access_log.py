"""One line for each request: who asked for what, which replica answered, how it ended, how long it took.

Never a prompt, an answer, a key or a client's address. A share of the requests that went well is enough to see what is
usual; all that failed are written down.

A request only leaves its figures here (`note`). They become text in `flush`, a whole batch in one go: that costs half
of what it does between two packets.
"""

import os
import time
from pathlib import Path

import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.model.ids import KeyId, RequestId, TenantId
from pilothouse.model.requests import Usage
from pilothouse.model.units import SECOND, WallNs
from pilothouse.policy.draw import Draws
from pilothouse.telemetry.event_log import EventLog
from pilothouse.telemetry.logs import timestamp

_MILLION = 1_000_000
_FIRST_ERROR = 400
_FLUSH_NOTES = 256  # some 300 KB of lines: as many as may wait until the owner's timer comes round
_KNOWN_BEGINNINGS = 1024  # models times routes times replicas times reasons of a large fleet; begun anew beyond it

_encode = msgspec.json.Encoder().encode


class RequestEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The fields of a line. Times in microseconds; `first_token_us` is for streams, `overhead_us` the gateway's part.

    `client_request_id` is the client's own, if it gave one; `replica` is the alias that clients may see.
    """

    event: str
    route: str
    status: int
    reason: str
    ts: str
    request_id: str
    duration_us: int
    request_bytes: int
    attempts: int
    overhead_us: int
    model: str | None = None
    tenant: TenantId | None = None
    key: KeyId | None = None
    replica: str | None = None
    stream: bool = False
    first_token_us: int = 0
    client_request_id: str | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


Kind = tuple[str, int, str, str, TenantId | None, KeyId | None, str | None, bool]
"""What many requests share: route, status, reason, model, tenant, key, replica, whether it was a stream."""

_Note = tuple[
    Kind,
    int, RequestId, int, int, int, int, int, bytes | None, Usage | None,
]  # fmt: skip


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
        self.takes_all = self._taken == _MILLION
        self._notes: list[_Note] = []
        self._beginnings: dict[object, bytes] = {}
        self._second = -1
        self._second_text = b""

    def takes(self, request: RequestId, status: int) -> bool:
        """Whether this request is written down: all that failed, of the others a share drawn by their ids."""
        if status >= _FIRST_ERROR or self.takes_all:
            return True
        return self._draws.below(_MILLION, request, "access log") < self._taken

    def note(
        self,
        kind: Kind,
        ended_at: int,
        request_id: RequestId,
        duration_ns: int,
        request_bytes: int,
        attempts: int = 0,
        overhead_ns: int = 0,
        first_token_ns: int = 0,
        client_request_id: bytes | None = None,
        usage: Usage | None = None,
    ) -> None:
        """Take a request down. `ended_at` is monotonic time in nanoseconds."""
        notes = self._notes
        notes.append(
            (
                kind,
                ended_at,
                request_id,
                duration_ns,
                request_bytes,
                attempts,
                overhead_ns,
                first_token_ns,
                client_request_id,
                usage,
            )
        )
        if len(notes) >= _FLUSH_NOTES:
            self.flush()

    def flush(self) -> None:
        """Make lines of what was noted, and write them as far as that goes without blocking."""
        notes, self._notes = self._notes, []
        to_wall = time.time_ns() - time.monotonic_ns()
        self._log.write([self._line(note, to_wall) for note in notes])
        self._log.flush()

    def close(self) -> None:
        """Write what is left."""
        self.flush()
        os.close(self._fd)

    def _line(self, note: _Note, to_wall: int) -> bytes:
        kind, ended_at, request_id, duration, size, attempts, overhead, first_token, client_request_id, usage = note
        second, rest = divmod(ended_at + to_wall, SECOND)
        if second != self._second:
            self._second = second
            self._second_text = timestamp(WallNs(second * SECOND))[:-4].encode()
        line = (
            b'%b,"ts":"%b%03dZ","request_id":"%b","duration_us":%d,"request_bytes":%d,"attempts":%d,"overhead_us":%d'
            % (
                self._beginnings.get(kind) or self._begin(kind),
                self._second_text,
                rest // 1_000_000,
                request_id.encode(),
                duration // 1000,
                size,
                attempts,
                overhead // 1000,
            )
        )
        if usage is not None:
            cached = usage.cached_tokens
            line += b',"input_tokens":%d,"output_tokens":%d' % (usage.input_tokens, usage.output_tokens)
            if cached:
                line += b',"cached_tokens":%d' % cached
        if first_token:
            line += b',"first_token_us":%d' % (first_token // 1000)
        if client_request_id:
            line += b',"client_request_id":%b' % _encode(client_request_id.decode("latin-1")[:128])
        return line + b"}"

    def _begin(self, kind: Kind) -> bytes:
        """The part of a line that all requests of a kind share."""
        route, status, reason, model, tenant, key, replica, stream = kind
        fields = {
            "event": "request_ended",
            "route": str(route),
            "status": status,
            "reason": str(reason),
            "model": model or None,
            "tenant": tenant,
            "key": key,
            "replica": replica,
            "stream": stream or None,
        }
        if len(self._beginnings) >= _KNOWN_BEGINNINGS:
            self._beginnings.clear()
        found = _encode({name: value for name, value in fields.items() if value is not None})[:-1]
        self._beginnings[kind] = found
        return found
