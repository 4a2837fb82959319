"""A client of an OSV API: https://google.github.io/osv.dev/api/."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Self
from urllib.parse import quote

import httpx2
import msgspec

from pilothouse.model.errors import PilothouseError
from pilothouse.policy.advisories.records import OsvRecord, decode_record
from pilothouse.store.operator_url import OperatorUrl

SOURCE = "osv-api"
"""What records from here have as their source."""
MAX_ANSWER_BYTES = 32 * 1024 * 1024  # the cap of the API itself over HTTP/1.1
MAX_QUERIES = 1000  # of one batch
_MAX_PAGES = 1000
_TIMEOUT_S = 30.0
_CONCURRENT = 8


class Query(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A package of an ecosystem, and perhaps one version of it."""

    name: str
    ecosystem: str = "PyPI"
    version: str | None = None

    def body(self, page_token: str | None) -> dict[str, Any]:
        """As the API wants it."""
        body: dict[str, Any] = {"package": {"name": self.name, "ecosystem": self.ecosystem}}
        if self.version is not None:
            body["version"] = self.version
        if page_token:
            body["page_token"] = page_token
        return body


class Stub(msgspec.Struct, frozen=True, kw_only=True):
    """A record as a batch tells of it."""

    id: str
    modified: str = ""


class _Answer(msgspec.Struct):
    vulns: list[Any] = []
    next_page_token: str | None = None


class _Stubs(msgspec.Struct):
    vulns: list[Stub] = []
    next_page_token: str | None = None


class _Batch(msgspec.Struct):
    results: list[_Stubs | None] = []


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Say what is wrong with the URL as a failure of the feed."""
    try:
        yield
    except ValueError as error:
        raise PilothouseError("feed_unreachable", f"the OSV API: {error}") from error


class OsvApi:
    """One API, by its base URL. Use it as an asynchronous context manager.

    Every method raises PilothouseError, feed_unreachable, when the API cannot be asked or answers otherwise than it
    should.
    """

    def __init__(self, url: str, *, allow_private: bool = False) -> None:
        with _refused():
            self._api = OperatorUrl(url, allow_private=allow_private, timeout_s=_TIMEOUT_S)
        self._url = self._api.url

    async def __aenter__(self) -> Self:
        with _refused():
            await self._api.check()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._api.client.aclose()

    async def query(self, query: Query) -> list[OsvRecord]:
        """All records about a package, or about one version of it, over all pages."""
        found: list[OsvRecord] = []
        token: str | None = None
        for _ in range(_MAX_PAGES):
            answer = await self._ask("POST", "/v1/query", _Answer, query.body(token))
            found += [self._record(each) for each in answer.vulns]
            token = answer.next_page_token
            if not token:
                return found
        raise self._odd("there is no end of pages")

    async def query_batch(self, queries: Sequence[Query]) -> list[list[Stub]]:
        """For each query the ids of its records, over all pages."""
        found: list[list[Stub]] = [[] for _ in queries]
        waiting: list[tuple[int, str | None]] = [(index, None) for index in range(len(queries))]
        for _ in range(_MAX_PAGES):
            if not waiting:
                return found
            now, later = waiting[:MAX_QUERIES], waiting[MAX_QUERIES:]
            body = {"queries": [queries[index].body(token) for index, token in now]}
            results = (await self._ask("POST", "/v1/querybatch", _Batch, body)).results
            if len(results) != len(now):
                raise self._odd(f"{len(results)} results for {len(now)} queries")
            more: list[tuple[int, str | None]] = []
            for (index, _token), result in zip(now, results, strict=True):
                if result is None:
                    continue
                found[index] += result.vulns
                if result.next_page_token:
                    more.append((index, result.next_page_token))
            waiting = [*more, *later]
        raise self._odd("there is no end of pages")

    async def record(self, id_: str) -> OsvRecord:
        """One whole record."""
        return self._record(await self._ask("GET", f"/v1/vulns/{quote(id_, safe='')}", dict[str, Any]))

    async def records(self, ids: Sequence[str]) -> list[OsvRecord]:
        """Whole records, some at a time."""
        turns = asyncio.Semaphore(_CONCURRENT)

        async def one(id_: str) -> OsvRecord:
            async with turns:
                return await self.record(id_)

        return list(await asyncio.gather(*map(one, ids)))

    async def _ask(self, method: str, path: str, shape: Any, body: object = None) -> Any:
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            async with self._api.client.stream(method, self._url + path, content=content, headers=headers) as response:
                with _refused():
                    self._api.check_peer(response)
                if response.status_code != 200:
                    raise self._odd(f"status {response.status_code} for {path}")
                answer = bytearray()
                async for chunk in response.aiter_bytes():
                    answer += chunk
                    if len(answer) > MAX_ANSWER_BYTES:
                        raise self._odd(f"more than {MAX_ANSWER_BYTES} bytes for {path}")
            return msgspec.json.decode(bytes(answer), type=shape)
        except httpx2.HTTPError as error:
            raise PilothouseError("feed_unreachable", f"{self._url} cannot be asked: {error!r}") from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._odd(f"the answer to {path}: {error}") from error

    def _record(self, tree: dict[str, Any]) -> OsvRecord:
        try:
            return msgspec.structs.replace(decode_record(tree), source=SOURCE)
        except ValueError as error:
            raise self._odd(str(error)) from error

    def _odd(self, what: str) -> PilothouseError:
        return PilothouseError("feed_unreachable", f"{self._url} answers otherwise than an OSV API: {what}")
