"""What a fake engine shall do with a request, other than answer it well."""

from collections import deque
from typing import Annotated, Any, Literal

import msgspec

UsageReport = Literal["normal", "omit", "null"]
LineEnding = Literal["lf", "crlf"]


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The behaviour of one response. The default is a good answer.

    Positions in a stream are counted in tokens of the answer; `0` is before the first. A stalled request keeps its
    place and its blocks in the engine until its time is over or the client goes away. Times are in seconds and are
    not scaled.

    Instead of an answer: `status` with `body` (JSON, or a string sent as it is; left out: a body as vLLM's).
    The answer: `text`, `output_tokens`, `finish_reason`, `headers` added to the response, `usage`.
    Time: `delay_s` before the first byte; `stall_after` tokens for `stall_s` (left out: for ever).
    The stream: `error_after` tokens an error event with `error` (JSON) as its data; `omit_done` leaves out the last
    event; `line_ending`; a comment before every `comment_every`-th event; `malformed_chunk_after` tokens a chunk whose
    size is no number.
    Bytes: `split` writes in pieces of these sizes, cyclically, `write_interval_s` apart.
    The end: close the connection after `close_after` tokens or after `close_after_bytes` of the response, head
    included (`0`: without a response); `reset` closes with a TCP reset.
    """

    status: int | None = None
    body: Any = None
    text: str | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    headers: dict[str, str] = {}
    usage: UsageReport = "normal"
    delay_s: float = 0.0
    stall_after: int | None = None
    stall_s: float | None = None
    error_after: int | None = None
    error: dict[str, Any] | None = None
    omit_done: bool = False
    line_ending: LineEnding = "lf"
    comment_every: int = 0
    malformed_chunk_after: int | None = None
    split: tuple[int, ...] = ()
    write_interval_s: float = 0.0
    close_after: int | None = None
    close_after_bytes: int | None = None
    reset: bool = False

    def __post_init__(self) -> None:
        if self.status is not None and not 200 <= self.status <= 599:
            raise ValueError("`status` must be between 200 and 599")
        if any(size < 1 for size in self.split):
            raise ValueError("`split` sizes must be at least 1")
        for name in ("output_tokens", "stall_after", "error_after", "malformed_chunk_after", "close_after"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"`{name}` must not be negative")
        for name, value in self.headers.items():
            if not name or any(character in name + value for character in "\r\n\0"):
                raise ValueError("`headers` must be single lines")

    @property
    def shapes_bytes(self) -> bool:
        """The bytes of the response are not simply written."""
        return bool(self.split) or self.close_after_bytes is not None


NORMAL = Script()


def parse_script(data: bytes | str) -> Script:
    """A script from JSON. Raises ValueError that says what is wrong."""
    try:
        return msgspec.json.decode(data, type=Script)
    except msgspec.DecodeError as error:  # ValidationError is one
        raise ValueError(f"not a script: {error}") from None


class ScriptOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`script` for the next `times` requests: those for `path`, or, without one, those to a route that generates."""

    script: Script
    times: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    path: str | None = None


class ScriptBook:
    """Scripts that wait for their requests, first come first served."""

    def __init__(self, otherwise: Script = NORMAL) -> None:
        self._otherwise = otherwise
        self._orders: deque[tuple[str | None, Script]] = deque()

    def __len__(self) -> int:
        return len(self._orders)

    def add(self, order: ScriptOrder) -> None:
        """Queue a script for requests to come."""
        self._orders.extend([(order.path, order.script)] * order.times)

    def clear(self) -> None:
        """Forget all that waits."""
        self._orders.clear()

    def take(self, path: str, *, generates: bool) -> Script:
        """The script for a request to `path`."""
        for index, (wanted, script) in enumerate(self._orders):
            if wanted == path or (wanted is None and generates):
                del self._orders[index]
                return script
        return self._otherwise if generates else NORMAL
