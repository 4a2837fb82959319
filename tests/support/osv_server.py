"""An OSV API on loopback, of records that a test brings: /v1/query, /v1/querybatch and /v1/vulns/ID, in pages."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec


class OsvServer:
    """What it has, what it was asked, and how it misbehaves.

    `raw` are bodies to answer with instead, by path; `page` is how many records a page has.
    """

    def __init__(self, records: dict[str, list[dict[str, Any]]], page: int) -> None:
        self.records = records
        self.page = page
        self.asked: list[tuple[str, Any]] = []
        self.raw: dict[str, bytes] = {}
        self.status = "200 OK"
        self.headers = ""
        self.url = ""

    def paths(self) -> list[str]:
        """The paths it was asked for, and forgotten."""
        found = [path for path, _ in self.asked]
        self.asked.clear()
        return found

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ", 2)[1]
        length = next((int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")), 0)
        body = msgspec.json.decode(await reader.readexactly(length)) if length else None
        self.asked.append((path, body))
        content = self.raw.get(path)
        if content is None:
            content = msgspec.json.encode(self._answer(path, body))
        answer = f"HTTP/1.1 {self.status}\r\n{self.headers}content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        writer.write(answer.encode() + content)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    def _answer(self, path: str, body: Any) -> Any:
        if path == "/v1/query":
            return self._page(body)
        if path == "/v1/querybatch":
            return {"results": [self._stubs(each) for each in body["queries"]]}
        wanted = path.removeprefix("/v1/vulns/")
        return next(each for found in self.records.values() for each in found if each["id"] == wanted)

    def _page(self, query: Any) -> dict[str, Any]:
        found = self.records.get(query["package"]["name"], [])
        start = int(query.get("page_token", 0))
        page: dict[str, Any] = {"vulns": found[start : start + self.page]}
        if start + self.page < len(found):
            page["next_page_token"] = str(start + self.page)
        return page

    def _stubs(self, query: Any) -> dict[str, Any] | None:
        page = self._page(query)
        if not page["vulns"]:
            return {}
        return {**page, "vulns": [{"id": each["id"], "modified": each["modified"]} for each in page["vulns"]]}


@contextlib.asynccontextmanager
async def osv_server(records: dict[str, list[dict[str, Any]]], *, page: int = 2) -> AsyncIterator[OsvServer]:
    """The server, listening."""
    server = OsvServer(records, page)
    async with await asyncio.start_server(server.serve, "127.0.0.1") as listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server
