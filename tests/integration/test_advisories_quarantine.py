"""Advisories and a fleet of fake engines, by the program alone: what a new record does to what serves."""

import datetime as dt
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pilothouse.cli.exits import Exit
from pilothouse.model.posture import Outcome

if TYPE_CHECKING:
    from tests.conftest import Pilothouse

pytestmark = pytest.mark.timeout(60)

QUESTION = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
LONG = {**QUESTION, "max_tokens": 150, "stream": True}
IMAGE = {**QUESTION, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]}
BOUND_S = 5.0  # of a minute that is promised
POSTURE = """
posture:
  sources: {directory: feed}
  requirements:
    - {name: text-only, package: pilothouse, feature: multimodal, reason: for a test}
"""


def fleet_with_feed(pilothouse: "Pilothouse") -> tuple[str, Path]:
    """A fleet file of fake engines with a feed directory, and that directory."""
    file = Path(pilothouse.fake_fleet(step_base_ms=20))
    file.write_text(file.read_text() + POSTURE)
    feed = pilothouse.home / "feed"
    feed.mkdir()
    return str(file), feed


def tell(feed: Path, **also: str) -> None:
    affected = {
        "package": {"ecosystem": "PyPI", "name": "pilothouse"},
        "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "999"}]}],
    }
    record = {"id": "CVE-2026-1", "modified": dt.datetime.now(dt.UTC).isoformat(), "affected": [affected], **also}
    (feed / "CVE-2026-1.json").write_text(json.dumps({**record, "database_specific": {"severity": "CRITICAL"}}))


def test_a_new_record_takes_a_fleet_out_of_new_turns_and_breaks_no_stream(pilothouse: "Pilothouse") -> None:
    file, feed = fleet_with_feed(pilothouse)
    pilothouse.run("up", file, "--detach")
    with pilothouse.client() as client:
        assert client.post("/v1/chat/completions", json=QUESTION).status_code == 200
        withheld = client.post("/v1/chat/completions", json=IMAGE)
        assert (withheld.status_code, withheld.json()["error"]["code"]) == (400, "feature_withheld")

        with client.stream("POST", "/v1/chat/completions", json=LONG) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            tell(feed)
            began = time.monotonic()
            while client.post("/v1/chat/completions", json=QUESTION).status_code == 200:
                assert time.monotonic() - began < BOUND_S, "a denied deployment gets new turns"
            refused = client.post("/v1/chat/completions", json=QUESTION)
            assert refused.json()["error"]["code"] == "no_ready_replica"
            assert list(filter(None, lines))[-1] == "data: [DONE]"

        found = pilothouse.status()
        assert (found.ready, found.postures[0].outcome) == (False, Outcome.DENIED)
        assert "quarantined: fake" in pilothouse.run("status")
        assert "cleared by 999" in pilothouse.run("status")

        waiver = ("--owner", "ana", "--reason", "for a test", "--expires", dt.datetime.now(dt.UTC).date().isoformat())
        pilothouse.run("advisories", "waive", "CVE-2026-1", *waiver, "--file", file)
        pilothouse.wait_for(lambda: pilothouse.status().ready, "a waived deployment to serve", BOUND_S)
        assert client.post("/v1/chat/completions", json=QUESTION).status_code == 200
        assert [each.restarts for each in pilothouse.status().replicas] == [0, 0]


def test_a_denied_deployment_is_refused_with_its_line_before_anything_starts(pilothouse: "Pilothouse") -> None:
    file, feed = fleet_with_feed(pilothouse)
    tell(feed)
    for command in (("config", "check", file), ("up", file, "--detach")):
        done = pilothouse.attempt(*command)
        assert done.returncode == Exit.ERROR
        assert "default.yaml:6: models.fake.deployments[0]: fake is denied; pilothouse" in done.stderr
        assert "denies CVE-2026-1 (critical)" in done.stderr
        assert "posture_denied" in done.stderr
    assert pilothouse.processes() == []
