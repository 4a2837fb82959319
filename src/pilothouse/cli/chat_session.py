"""One conversation over the API: what was said so far, and the next answer as it is written."""

import contextlib
from collections.abc import Generator, Iterator
from typing import Self

import httpx2
import msgspec

from pilothouse.cli.api_errors import error_object
from pilothouse.cli.output import CommandError
from pilothouse.cli.target import Target
from pilothouse.model.errors import PilothouseError

_CONNECT_TIMEOUT_S = 5.0
_READ_TIMEOUT_S = 600.0  # a long queue and a long prompt are slow, not dead


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class ChatSession:
    """Keeps the history; to be used in a `with`. Methods raise PilothouseError or CommandError."""

    def __init__(self, target: Target, *, model: str | None, system: str | None) -> None:
        self._url = target.url
        self._client = httpx2.Client(
            base_url=target.url,
            headers=target.headers,
            timeout=httpx2.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S),
            trust_env=False,
        )
        self._messages = [{"role": "system", "content": system}] if system else []
        try:
            self.model = model or self._first_model()
        except BaseException:
            self._client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @property
    def messages(self) -> tuple[dict[str, str], ...]:
        """What was said so far."""
        return tuple(self._messages)

    def ask(self, prompt: str) -> Generator[str, None, None]:
        """Pieces of the answer as they come.

        Closing the iterator, or an interrupt while it runs, ends the answer on the server too; what was said until
        then stays in the history. A question that failed does not.
        """
        self._messages.append({"role": "user", "content": prompt})
        said: list[str] = []
        try:
            for piece in self._answer():
                said.append(piece)
                yield piece
        except (PilothouseError, CommandError):
            if not said:
                self._messages.pop()
            raise
        finally:
            if said:
                self._messages.append({"role": "assistant", "content": "".join(said)})

    def _answer(self) -> Iterator[str]:
        body = {"model": self.model, "messages": self._messages, "stream": True}
        with self._connection_errors(), self._client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                refused = error_object(response.read(), response.status_code)
                assert refused is not None
                raise refused.as_exception()
            for line in response.iter_lines():
                if line.startswith("data:"):
                    yield from _pieces(line.removeprefix("data:").strip())

    def _first_model(self) -> str:
        with self._connection_errors():
            response = self._client.get("/v1/models")
        if response.status_code != 200:
            refused = error_object(response.content, response.status_code)
            assert refused is not None
            raise refused.as_exception()
        models = msgspec.json.decode(response.content, type=_Models).data
        if not models:
            raise CommandError("the server has no model", hint="`pilothouse status` shows what the fleet is doing")
        return models[0].id

    @contextlib.contextmanager
    def _connection_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx2.ConnectError as error:
            raise PilothouseError("fleet_not_running", f"nothing answers at {self._url}") from error
        except httpx2.HTTPError as error:
            raise CommandError(
                f"the connection to {self._url} was lost: {str(error) or type(error).__name__}"
            ) from error


def _pieces(data: str) -> Iterator[str]:
    if data == "[DONE]":
        return
    failed = error_object(data.encode())
    if failed is not None:
        raise failed.as_exception()
    for choice in msgspec.json.decode(data, type=_Chunk).choices:
        if choice.delta.content:
            yield choice.delta.content
