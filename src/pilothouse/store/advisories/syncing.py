"""Get what the sources know now of the packages that fleets run."""

import datetime as dt
from collections.abc import Iterable
from pathlib import Path

import msgspec

from pilothouse.policy.advisories.packages import PackageNames
from pilothouse.policy.advisories.records import OsvRecord, Snapshot
from pilothouse.store.advisories.feed_directory import FeedDirectory
from pilothouse.store.advisories.osv_api import SOURCE, OsvApi, Query, Stub

_PYPI = "pypi/"


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where to ask: an OSV API, a directory, or both."""

    osv_url: str | None = None
    directory: Path | None = None
    allow_private: bool = False


async def sync(sources: Sources, old: Snapshot | None, names: PackageNames, today: dt.date) -> Snapshot:
    """The records of all sources about the packages that `names` lists.

    Records of the API that have not changed since `old` are not fetched again. The date is that of the source that is
    furthest behind: today for the API, the newest change to any record for a directory.

    Raises:
        PilothouseError: feed_unreachable, feed_unreadable.
    """
    records: list[OsvRecord] = []
    unread: tuple[str, ...] = ()
    dates: list[str] = []
    if sources.osv_url is not None:
        async with OsvApi(sources.osv_url, allow_private=sources.allow_private) as api:
            records += await _from_api(api, old, names)
        dates.append(today.isoformat())
    if sources.directory is not None:
        found = FeedDirectory(sources.directory, names).read()
        records += found.records
        unread = found.unread
        dates.append(found.date)
    return Snapshot(date=_earliest(dates), records=tuple(records), unread=unread)


async def _from_api(api: OsvApi, old: Snapshot | None, names: PackageNames) -> list[OsvRecord]:
    queries = [Query(name=each.key.removeprefix(_PYPI)) for each in names.packages if each.key.startswith(_PYPI)]
    stubs: dict[str, Stub] = {}
    for found in await api.query_batch(queries):
        stubs |= {each.id: each for each in found}
    kept = {each.id: each for each in (old.records if old else ()) if each.source == SOURCE}
    unchanged = {
        id_ for id_, stub in stubs.items() if id_ in kept and stub.modified and kept[id_].modified == stub.modified
    }
    fetched = await api.records([id_ for id_ in stubs if id_ not in unchanged])
    return [*(kept[id_] for id_ in stubs if id_ in unchanged), *fetched]


def _earliest(dates: Iterable[str]) -> str:
    """The earliest; one that is no date comes before all."""
    return min(dates, key=lambda each: each if each[:1].isdecimal() else "", default="never")
