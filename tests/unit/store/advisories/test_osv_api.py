from typing import Any

import pytest

from osv_server import OsvServer, osv_server
from pilothouse.model.errors import PilothouseError
from pilothouse.store.advisories import osv_api
from pilothouse.store.advisories.osv_api import OsvApi, Query, Stub

pytestmark = pytest.mark.asyncio


def record(id_: str, **also: Any) -> dict[str, Any]:
    return {"id": id_, "modified": "2026-05-01T00:00:00Z", "affected": [], **also}


FIVE = {"vllm": [record(f"CVE-{number}") for number in range(5)], "ray": [record("CVE-9")]}


def api(server: OsvServer) -> OsvApi:
    return OsvApi(server.url, allow_private=True)


async def refusal(server: OsvServer) -> str:
    with pytest.raises(PilothouseError) as caught:
        async with api(server) as client:
            await client.query(Query(name="vllm"))
    assert caught.value.code == "feed_unreachable"
    return caught.value.message


async def test_a_query_reads_every_page() -> None:
    async with osv_server(FIVE) as server, api(server) as client:
        found = await client.query(Query(name="vllm", version="0.14.0"))
        assert [each.id for each in found] == [f"CVE-{number}" for number in range(5)]
        assert {each.source for each in found} == {"osv-api"}
        bodies = [body for _, body in server.asked]
        assert bodies[0] == {"package": {"name": "vllm", "ecosystem": "PyPI"}, "version": "0.14.0"}
        assert [each.get("page_token") for each in bodies] == [None, "2", "4"]


async def test_a_batch_reads_every_page_of_every_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(osv_api, "MAX_QUERIES", 2)
    async with osv_server(FIVE) as server, api(server) as client:
        found = await client.query_batch([Query(name="vllm"), Query(name="none"), Query(name="ray")])
        assert [[stub.id for stub in each] for each in found] == [[f"CVE-{n}" for n in range(5)], [], ["CVE-9"]]
        assert found[2] == [Stub(id="CVE-9", modified="2026-05-01T00:00:00Z")]
        assert max(len(body["queries"]) for _, body in server.asked) == 2


async def test_whole_records_by_id() -> None:
    odd = record("A/../B c")
    async with osv_server({"vllm": [*FIVE["vllm"], odd]}) as server, api(server) as client:
        assert [each.id for each in await client.records(["CVE-3", "CVE-1"])] == ["CVE-3", "CVE-1"]
        server.raw["/v1/vulns/A%2F..%2FB%20c"] = b'{"id": "A/../B c", "modified": ""}'
        assert (await client.record("A/../B c")).id == "A/../B c"


@pytest.mark.parametrize("status", ["400 Bad Request", "302 Found", "500 Oops"])
async def test_another_status_is_refused_and_no_redirect_is_followed(status: str) -> None:
    async with osv_server(FIVE) as server:
        server.status, server.headers = status, f"location: {server.url}/elsewhere\r\n"
        assert f"status {status[:3]}" in await refusal(server)
        assert server.paths() == ["/v1/query"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"vulns": [1]}', b'{"vulns": [{"id": "X"}]}', b'{"vulns": ' + b"[" * 5000]
)
async def test_an_answer_of_another_shape_is_refused(body: bytes) -> None:
    async with osv_server(FIVE) as server:
        server.raw["/v1/query"] = body
        assert "otherwise than an OSV API" in await refusal(server)


async def test_an_answer_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with osv_server(FIVE) as server:
        monkeypatch.setattr(osv_api, "MAX_ANSWER_BYTES", 10)
        assert "more than 10 bytes" in await refusal(server)
        monkeypatch.undo()
        server.raw["/v1/query"] = b'{"vulns": [], "next_page_token": "again"}'
        monkeypatch.setattr(osv_api, "_MAX_PAGES", 3)
        assert "no end of pages" in await refusal(server)


async def test_a_batch_of_another_length_is_refused() -> None:
    async with osv_server(FIVE) as server, api(server) as client:
        server.raw["/v1/querybatch"] = b'{"results": []}'
        with pytest.raises(PilothouseError, match="0 results for 1 queries"):
            await client.query_batch([Query(name="vllm")])


async def test_a_server_that_is_not_there() -> None:
    async with osv_server(FIVE) as server:
        url = server.url
    with pytest.raises(PilothouseError, match="cannot be asked"):
        async with OsvApi(url, allow_private=True) as client:
            await client.query(Query(name="vllm"))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1", "private address"),
        ("http://localhost:1", "private address"),
        ("http://[::ffff:10.0.0.1]:1", "private address"),
        ("http://no-such-host.invalid", "cannot be resolved"),
    ],
)
async def test_where_it_must_not_lead(url: str, message: str) -> None:
    with pytest.raises(PilothouseError, match=message):
        async with OsvApi(url):
            pass


@pytest.mark.parametrize("url", ["http://169.254.169.254/x", "http://metadata.google.internal", "file:///etc/passwd"])
async def test_what_is_refused_even_if_private_ones_are_allowed(url: str) -> None:
    with pytest.raises(PilothouseError, match="the OSV API"):
        OsvApi(url, allow_private=True)


async def test_the_address_that_was_connected_to_is_checked_again() -> None:
    async with osv_server(FIVE) as server:
        client = OsvApi(server.url)
        async with client._api.client:  # as if the name had led elsewhere when it was checked
            with pytest.raises(PilothouseError, match="private address"):
                await client.query(Query(name="vllm"))
