"""Who may ask: the directory in a worker's memory, whole, changed and revoked."""

import hmac
from pathlib import Path
from typing import Any

import pytest

from data_plane import KEY, MODEL, PEPPER, data_plane, directory_of_tests, request, snapshot
from pilothouse.gateway.callers import Callers
from pilothouse.model.ids import KeyId, TenantId
from pilothouse.model.tenants import DirectoryChange, Key, Scope, TenantDirectory

DIGEST = hmac.digest(PEPPER, KEY.encode(), "sha256")
CHAT = "/v1/chat/completions"


def callers(directory: TenantDirectory | None = None) -> Callers:
    made = Callers()
    made.use([directory or directory_of_tests()])
    return made


def other_key(name: str = "key_2") -> Key:
    return Key(id=KeyId(name), tenant=TenantId("tests"), digest=name.encode().ljust(32))


class TestDirectory:
    def test_a_key_is_found_with_what_stands_above_it(self) -> None:
        found = callers().find(DIGEST)
        assert found is not None
        assert (found.id, found.tenant_id, found.organisation.name) == ("key_1", "tests", "Acme")
        assert callers().find(b"x" * 32) is None

    def test_a_change_adds_and_takes_away(self) -> None:
        made = callers()
        before = made.generation
        assert made.change(DirectoryChange(base=1, version=2, keys=(other_key(),), gone_keys=(KeyId("key_1"),)))
        assert made.version == 2
        assert made.generation is not before
        assert made.find(DIGEST) is None
        assert made.find(other_key().digest) is not None

    def test_a_change_of_a_version_that_is_not_there_is_refused_and_an_old_one_passed_over(self) -> None:
        made = callers(directory_of_tests(version=5))
        assert not made.change(DirectoryChange(base=6, version=7, gone_keys=(KeyId("key_1"),)))
        assert made.change(DirectoryChange(base=1, version=3, gone_keys=(KeyId("key_1"),)))
        assert made.find(DIGEST) is not None
        assert made.version == 5

    def test_what_is_revoked_stays_so_whatever_an_older_directory_says(self) -> None:
        made = callers()
        made.revoke(["key_1"])
        assert made.find(DIGEST) is None
        made.use([directory_of_tests(version=2)])
        assert made.find(DIGEST) is None
        made.change(DirectoryChange(base=2, version=3, keys=directory_of_tests().keys))
        assert made.find(DIGEST) is None

    def test_a_revoked_tenant_takes_its_keys_with_it(self) -> None:
        made = callers()
        assert made.find(DIGEST) is not None
        made.revoke(["tests"])
        assert made.find(DIGEST) is None

    def test_a_directory_comes_in_parts(self) -> None:
        first = directory_of_tests()
        made = Callers()
        made.use([first, TenantDirectory(version=1, keys=(other_key(),))])
        assert made.find(DIGEST) is not None
        assert made.find(other_key().digest) is not None


@pytest.mark.asyncio
class TestRequests:
    async def ask(self, tmp_path: Path, path: str = CHAT, **key: Any) -> tuple[int, str]:
        async with data_plane(snapshot([]), tmp_path, tenants=directory_of_tests(key=key)) as plane:
            method = "POST" if path == CHAT else "GET"
            answer = await plane.ask(path, {"model": MODEL, "messages": []} if path == CHAT else b"", method=method)
            return answer.status, answer.code if answer.status != 200 else ""

    async def test_a_key_has_an_end(self, tmp_path: Path) -> None:
        assert await self.ask(tmp_path, expires_at=1) == (401, "key_expired")
        assert await self.ask(tmp_path, expires_at=1 << 62) == (503, "no_ready_replica")

    async def test_a_key_is_for_its_networks(self, tmp_path: Path) -> None:
        assert await self.ask(tmp_path, networks=("10.0.0.0/8", "::1/128")) == (403, "key_not_allowed")
        assert await self.ask(tmp_path, networks=("127.0.0.0/8",)) == (503, "no_ready_replica")

    async def test_a_key_is_for_its_scopes(self, tmp_path: Path) -> None:
        assert await self.ask(tmp_path, scopes=(Scope.MODELS,)) == (403, "key_not_allowed")
        assert await self.ask(tmp_path, "/v1/models", scopes=(Scope.MODELS,)) == (200, "")
        assert await self.ask(tmp_path, "/v1/models", scopes=(Scope.INFERENCE,)) == (403, "key_not_allowed")

    async def test_a_model_that_a_key_may_not_use_is_not_there_for_it(self, tmp_path: Path) -> None:
        assert await self.ask(tmp_path, models=("other",)) == (404, "model_not_found")
        assert await self.ask(tmp_path, f"/v1/models/{MODEL}", models=("other",)) == (404, "model_not_found")
        async with data_plane(snapshot([]), tmp_path, tenants=directory_of_tests(key={"models": ()})) as plane:
            assert (await plane.ask("/v1/models", method="GET")).json()["data"] == []

    async def test_every_level_may_narrow_the_models(self, tmp_path: Path) -> None:
        directory = directory_of_tests(key={"models": (MODEL, "a")}, tenant={"models": ("a",)})
        async with data_plane(snapshot([]), tmp_path, tenants=directory) as plane:
            assert (await plane.ask(CHAT, {"model": MODEL, "messages": []})).code == "model_not_found"
            assert (await plane.ask(CHAT, {"model": "a", "messages": []})).code == "model_not_found"

    async def test_a_key_ends_on_a_connection_that_goes_on(self, tmp_path: Path) -> None:
        async with data_plane(snapshot([]), tmp_path) as plane:
            wire = await plane.send(request("/v1/models", method="GET"))
            assert (await wire.answer()).status == 200
            ended = directory_of_tests(key={"expires_at": 1}).keys
            plane.plane.callers.change(DirectoryChange(base=1, version=2, keys=ended))
            wire.writer.write(request("/v1/models", method="GET"))
            assert (await wire.answer()).code == "key_expired"
