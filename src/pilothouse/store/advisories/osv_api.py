"""A client of an OSV API: https://google.github.io/osv.dev/api/.

The URL is an operator's, so that redirects are not followed, and addresses that are link-local, or private without
having been declared, are refused.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from pilothouse.config.addresses import check_upstream_url, leads_to_metadata
from pilothouse.model.errors import PilothouseError
from pilothouse.policy.advisories.records import OsvRecord, decode_record

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


class OsvApi:
    """One API, by its base URL. Use it as an asynchronous context manager.

    Every method raises PilothouseError, feed_unreachable, when the API cannot be asked or answers otherwise than it
    should.
    """

    def __init__(self, url: str, *, allow_private: bool = False) -> None:
        try:
            check_upstream_url(url)
        except ValueError as error:
            raise PilothouseError("feed_unreachable", f"the OSV API's URL: {error}") from error
        self._url = url.rstrip("/")
        self._allow_private = allow_private
        self._client = httpx2.AsyncClient(follow_redirects=False, trust_env=False, timeout=_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        await self._check_addresses()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

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
            async with self._client.stream(method, self._url + path, content=content, headers=headers) as response:
                self._check_peer(response)
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

    async def _check_addresses(self) -> None:
        """Refuse the names that lead where an operator's URL must not lead."""
        url = urlsplit(self._url)
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise PilothouseError("feed_unreachable", f"{host} cannot be resolved: {error.strerror}") from error
        for *_, address in found:
            self._check_address(str(address[0]))

    def _check_peer(self, response: httpx2.Response) -> None:
        """Again, of what was connected to: a name may have come to lead elsewhere meanwhile."""
        stream = response.extensions.get("network_stream")
        peer = stream.get_extra_info("server_addr") if stream is not None else None
        if peer:
            self._check_address(str(peer[0]))

    def _check_address(self, text: str) -> None:
        if leads_to_metadata(text):
            raise PilothouseError("feed_unreachable", f"{self._url} leads to a link-local or metadata address")
        address = ipaddress.ip_address(text.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if not address.is_global and not self._allow_private:
            raise PilothouseError(
                "feed_unreachable",
                f"{self._url} leads to the private address {address}",
                hint="if it is your own mirror, say so: posture.sources.allow_private: true",
            )
