import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from osv_server import osv_server
from pilothouse.policy.advisories.packages import Package, PackageNames
from pilothouse.store.advisories.syncing import Sources, sync

pytestmark = pytest.mark.asyncio

NAMES = PackageNames((Package(key="pypi/vllm"), Package(key="pypi/ray"), Package(key="github/x/y")))
TODAY = dt.date(2026, 6, 30)


def record(id_: str, name: str = "vllm", modified: str = "2026-05-01T00:00:00Z") -> dict[str, Any]:
    return {"id": id_, "modified": modified, "affected": [{"package": {"name": name, "ecosystem": "PyPI"}}]}


async def test_the_api_is_asked_for_what_is_listed_and_only_for_what_has_changed() -> None:
    records = {"vllm": [record("A"), record("B"), record("C")], "ray": [record("D", "ray"), record("A")]}
    async with osv_server(records) as server:
        sources = Sources(osv_url=server.url, allow_private=True)
        first = await sync(sources, None, NAMES, TODAY)
        assert (first.date, sorted(each.id for each in first.records)) == ("2026-06-30", ["A", "B", "C", "D"])
        queries = server.asked[0][1]["queries"]
        assert [each["package"]["name"] for each in queries] == ["vllm", "ray"]
        server.asked.clear()

        records["vllm"][1] = record("B", modified="2026-06-01T00:00:00Z")
        records["vllm"].pop()
        second = await sync(sources, first, NAMES, TODAY + dt.timedelta(days=1))
        assert [each for each in server.paths() if "vulns" in each] == ["/v1/vulns/B"]
        assert {each.id: each.modified[:7] for each in second.records} == {
            "A": "2026-05", "B": "2026-06", "D": "2026-05",
        }  # fmt: skip


async def test_a_directory_is_dated_by_its_newest_record_and_read_for_what_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(record("A")))
    (tmp_path / "b.json").write_text(json.dumps(record("B", "left-pad", "2026-06-02T00:00:00Z")))
    (tmp_path / "odd.json").write_text("{")
    found = await sync(Sources(directory=tmp_path), None, NAMES, TODAY)
    assert (found.date, [each.id for each in found.records]) == ("2026-06-02", ["A"])
    assert len(found.unread) == 1


async def test_of_two_sources_the_one_that_is_behind_dates_the_whole(tmp_path: Path) -> None:
    async with osv_server({"vllm": [record("A")]}) as server:
        sources = Sources(osv_url=server.url, directory=tmp_path, allow_private=True)
        assert (await sync(sources, None, NAMES, TODAY)).date == "never"
        (tmp_path / "b.json").write_text(json.dumps(record("B")))
        found = await sync(sources, None, NAMES, TODAY)
        assert (found.date, {each.source for each in found.records}) == ("2026-05-01", {"osv-api", "osv"})
