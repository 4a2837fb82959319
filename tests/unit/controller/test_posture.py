"""What advisories do to a fleet that runs, with real processes of the fake engine."""

import asyncio
import datetime as dt
import json
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilothouse.config.paths import FleetPaths
from pilothouse.controller import posture as posture_module
from pilothouse.controller.posture import PostureWatch
from pilothouse.model.errors import PilothouseError
from pilothouse.model.fleet import DeploymentView, ReplicaState
from pilothouse.model.posture import Outcome, PostureSpec, Requirement, Waiver
from pilothouse.model.spec import FleetSpec
from pilothouse.store.advisories import webhook as webhook_module
from pilothouse.store.advisories.local import AdvisoryStore, GivenWaiver
from pilothouse.testing.processes import wait_until

pytestmark = pytest.mark.asyncio

MakeFleet = Callable[..., FleetSpec]
StartFleet = Callable[[FleetSpec], AbstractAsyncContextManager[Any]]
Listen = Callable[..., AbstractAsyncContextManager[Any]]
TEXT_ONLY = Requirement(name="text-only", package="pilothouse", feature="multimodal", reason="for a test")


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posture_module, "LOOK_EVERY_S", 0.02)


class Feed:
    """A feed directory with at most one record, about the fake engine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def tell(self, severity: str = "CRITICAL", **also: str) -> None:
        affected = {
            "package": {"ecosystem": "PyPI", "name": "pilothouse"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}],
        }
        now = dt.datetime.now(dt.UTC).isoformat()
        record = {"id": "CVE-2026-1", "modified": now, "summary": "bad", "affected": [affected], **also}
        aside = self.directory / "new"
        aside.write_text(json.dumps({**record, "database_specific": {"severity": severity}}))
        aside.replace(self.directory / "CVE-2026-1.json")


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "feed")


def with_posture(spec: FleetSpec, feed: Feed, **fields: Any) -> FleetSpec:
    return msgspec.structs.replace(spec, posture=PostureSpec(feed_directory=str(feed.directory), **fields))


def view(worker: Any) -> DeploymentView:
    found = worker.latest.models[0].deployments[0]
    assert isinstance(found, DeploymentView)
    return found


def waiver(expires: str = "2999-01-01") -> Waiver:
    return Waiver(covers="CVE-2026-1", owner="ana", reason="mitigated", expires=expires)


async def test_a_new_record_quarantines_and_its_withdrawal_lets_serve_again(
    fleet: MakeFleet, running: StartFleet, listening: Listen, feed: Feed
) -> None:
    async with running(with_posture(fleet(2), feed)) as it, listening() as worker:
        await it.until_ready()
        await wait_until(lambda: bool(worker.ready()), "the snapshot")
        assert not view(worker).quarantined
        pids = it.pids()
        feed.tell()
        await wait_until(lambda: view(worker).quarantined, "the quarantine")
        status = it.controller.status()
        (posture,) = status.postures
        assert (status.ready, posture.outcome) == (False, Outcome.DENIED)
        assert "CVE-2026-1 (critical): bad" in posture.reasons[0]
        assert it.pids() == pids, "its processes finish their turns"
        assert b'posture{deployment="a",state="denied"} 1.0' in it.controller.metrics_text("").body
        feed.tell(withdrawn="2026-11-30T00:00:00Z")
        await wait_until(lambda: not view(worker).quarantined, "the end of the quarantine")
        assert it.pids() == pids
        assert it.controller.status().ready


async def test_before_the_start_nothing_is_known(fleet: MakeFleet, feed: Feed, paths: FleetPaths) -> None:
    spec = with_posture(fleet(1), feed)
    assert PostureWatch(spec, paths.advisories_dir, lambda: None).statuses() == ()


async def test_a_denied_deployment_is_not_started_until_a_waiver_allows_it(
    fleet: MakeFleet, running: StartFleet, feed: Feed, paths: FleetPaths
) -> None:
    feed.tell()
    async with running(with_posture(fleet(1), feed)) as it:
        await asyncio.sleep(0.1)
        assert it.replicas() == {}
        given = GivenWaiver(waiver=waiver(), given_by="ana", given_at="2026-12-01T00:00:00Z")
        AdvisoryStore(paths.advisories_dir).keep_waivers((given,))
        await it.until_ready()
        assert it.controller.status().postures[0].outcome is not Outcome.DENIED


async def test_a_waiver_ends_with_its_day(
    fleet: MakeFleet, running: StartFleet, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.tell()
    async with running(with_posture(fleet(1), feed, waivers=(waiver("2999-01-01"),))) as it:
        await it.until_ready()
        monkeypatch.setattr(posture_module, "_today", lambda: dt.date(2999, 1, 2))
        await it.until(lambda: it.controller.status().postures[0].outcome is Outcome.DENIED, "the quarantine")
        assert set(it.pids()) == {"a-0"}


async def test_what_crashes_in_quarantine_is_not_started_again(
    fleet: MakeFleet, running: StartFleet, feed: Feed, impatient: None
) -> None:
    async with running(with_posture(fleet(2), feed)) as it:
        await it.until_ready()
        feed.tell()
        await it.until(lambda: it.controller.status().postures[0].outcome is Outcome.DENIED, "the quarantine")
        os.kill(it.pids()["a-0"], 9)
        await it.until(lambda: it.states() == {"a-1": ReplicaState.READY}, "the crashed one to be gone")


async def test_a_feature_is_taken_away(fleet: MakeFleet, running: StartFleet, listening: Listen, feed: Feed) -> None:
    async with running(with_posture(fleet(1), feed, requirements=(TEXT_ONLY,))) as it, listening() as worker:
        await it.until_ready()
        await wait_until(lambda: bool(worker.ready()), "the snapshot")
        assert (view(worker).without, view(worker).quarantined) == (("multimodal",), False)
        it.file = with_posture(fleet(1), feed)
        await it.controller.reload()
        await wait_until(lambda: view(worker).without == (), "the feature to be back")


class TestReloading:
    async def test_a_changed_deployment_that_is_denied_is_refused(
        self, fleet: MakeFleet, running: StartFleet, feed: Feed
    ) -> None:
        async with running(with_posture(fleet(1), feed)) as it:
            await it.until_ready()
            feed.tell()
            await it.until(lambda: it.controller.status().postures[0].outcome is Outcome.DENIED, "the quarantine")
            it.file = with_posture(fleet(1, args={"seed": 7}), feed)
            with pytest.raises(PilothouseError, match=r"a is denied; pilothouse .*\n  denies CVE-2026-1") as caught:
                await it.controller.reload()
            assert caught.value.code == "posture_denied"
            assert set(it.pids()) == {"a-0"}

    async def test_what_runs_in_quarantine_does_not_keep_other_changes_out(
        self, fleet: MakeFleet, running: StartFleet, feed: Feed
    ) -> None:
        async with running(with_posture(fleet(1), feed)) as it:
            await it.until_ready()
            feed.tell()
            await it.until(lambda: it.controller.status().postures[0].outcome is Outcome.DENIED, "the quarantine")
            it.file = with_posture(fleet(1), feed, waivers=(waiver(),))
            assert (await it.controller.reload()).changes != ()
            assert it.controller.status().ready

    async def test_a_waiver_that_is_taken_back_quarantines(
        self, fleet: MakeFleet, running: StartFleet, feed: Feed
    ) -> None:
        feed.tell()
        async with running(with_posture(fleet(1), feed, waivers=(waiver(),))) as it:
            await it.until_ready()
            it.file = with_posture(fleet(1), feed, waivers=(waiver("2020-01-01"),))
            await it.controller.reload()
            assert it.controller.status().postures[0].outcome is Outcome.DENIED
            assert set(it.pids()) == {"a-0"}


async def test_records_that_cannot_be_read_are_shown_and_deny_nothing(
    fleet: MakeFleet, running: StartFleet, feed: Feed, paths: FleetPaths
) -> None:
    async with running(with_posture(fleet(1), feed)) as it:
        await it.until_ready()
        (feed.directory / "odd.json").write_text("{")
        await it.until(lambda: "odd.json" in str(it.controller.status().postures[0].reasons), "the record to be named")
        assert it.controller.status().postures[0].outcome is Outcome.WARNED
        paths.advisories_dir.mkdir()
        (paths.advisories_dir / "synced.json").write_text("{")
        await it.until(lambda: "damaged" in str(it.controller.status().postures[0].reasons), "the damage to be told")
        assert it.controller.status().ready


class Hook:
    """A webhook on loopback, which refuses the first call."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.calls = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        self.calls += 1
        if self.calls > 1:
            self.bodies.append(json.loads(body))
        status = b"204 No Content" if self.calls > 1 else b"503 Unavailable"
        writer.write(b"HTTP/1.1 %b\r\nconnection: close\r\n\r\n" % status)
        writer.close()


async def test_the_webhook_hears_of_what_became_worse(
    fleet: MakeFleet, running: StartFleet, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_module, "FIRST_PAUSE_S", 0.01)
    hook = Hook()
    async with await asyncio.start_server(hook.answer, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        spec = with_posture(fleet(1), feed, webhook=url, allow_private_webhook=True)
        async with running(spec) as it:
            await it.until_ready()
            feed.tell()
            await wait_until(lambda: bool(hook.bodies), "the call")
            feed.tell(withdrawn="2026-11-30T00:00:00Z")
            await it.until(lambda: it.controller.status().ready, "the end of the quarantine")
    (told,) = hook.bodies
    assert (told["event"], told["fleet"], told["deployment"], told["outcome"]) == (
        "posture.worsened", "test", "a", "denied",
    )  # fmt: skip
    assert "CVE-2026-1" in told["reasons"][0]


async def test_what_arrived_while_there_was_no_controller_is_told_by_the_next(
    fleet: MakeFleet, running: StartFleet, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(with_posture(fleet(1), feed)) as it:
        await it.until_ready()
    assert "posture worsened" not in caplog.text
    feed.tell()
    async with running(with_posture(fleet(1), feed)) as it:
        assert it.controller.status().postures[0].outcome is Outcome.DENIED
        assert "posture worsened" in caplog.text
