"""What a fake engine tells about itself to tests."""

from hashlib import sha256
from typing import Any

import msgspec


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request as /fake/state shows it. The value of `authorization` is replaced by its sha256."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body_bytes: int
    body_sha256: str


class SeenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that came in. Header names are lower case."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header, by its lower-case name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)

    def view(self) -> RequestView:
        """What may be shown to anyone who can reach the engine."""
        return RequestView(
            method=self.method,
            path=self.path,
            query=self.query,
            headers=tuple(
                (name, f"sha256:{sha256(value.encode()).hexdigest()}" if name == "authorization" else value)
                for name, value in self.headers
            ),
            body_bytes=len(self.body),
            body_sha256=sha256(self.body).hexdigest(),
        )


class KvState(msgspec.Struct, frozen=True, kw_only=True):
    """The KV cache in blocks: all, held by sequences, and those whose content can be hit."""

    blocks: int
    used: int
    cached: int
    events_endpoint: str | None
    replay_endpoint: str | None


class EngineState(msgspec.Struct, frozen=True, kw_only=True):
    """GET /fake/state. `running` and `waiting` are sequences, `in_flight` HTTP requests for text."""

    running: int
    waiting: int
    in_flight: int
    finished: dict[str, int]
    aborted: int
    preemptions: int
    prompt_tokens: int
    generation_tokens: int
    kv: KvState
    scripts_waiting: int
    requests_total: int
    requests: tuple[RequestView, ...]
