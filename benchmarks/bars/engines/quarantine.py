"""How soon a new record takes a fleet out of new turns, and whether a running stream notices."""

import datetime as dt
import json
import statistics
import time
from pathlib import Path

import httpx2

from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import Home, home, wait_for

LIMIT_S = 1.0
ROUNDS = 8
_FLEET = """
models:
  fake: {deployments: [{name: fake, engine: {name: fake, args: {step-base-ms: 20}}, replicas: 2}]}
posture: {sources: {directory: watched}}
"""
_QUESTION = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}


def measure() -> list[Bar]:
    """From the end of `advisories sync` to the last new turn, and from a file in the feed directory to it."""
    with home() as one:
        fleet = one.directory / "fleet.yaml"
        fleet.write_text(_FLEET)
        for name in ("watched", "mirror"):
            (one.directory / name).mkdir()
        one.run("up", "--detach", str(fleet))
        by_sync, by_file, broken = _rounds(one)
        one.run("down")
    return [
        _bar("a new record changes routing after the sync", by_sync),
        _bar("a new record changes routing after it is in the feed directory", by_file),
        Bar(
            name="streams that a quarantine broke", limit="0", measured=f"{broken} of {2 * ROUNDS}", passed=broken == 0
        ),
    ]


def _bar(name: str, times: list[float]) -> Bar:
    return Bar(
        name=name,
        limit=f"< {LIMIT_S:g} s",
        measured=f"{max(times):.2f} s at most, {statistics.median(times):.2f} s in the median of {len(times)}",
        passed=max(times) < LIMIT_S,
        details={"runs_s": [round(each, 3) for each in times]},
    )


def _rounds(one: Home) -> tuple[list[float], list[float], int]:
    by_sync: list[float] = []
    by_file: list[float] = []
    broken = 0
    headers = {"authorization": f"Bearer {one.key()}"}
    with httpx2.Client(base_url=one.url, headers=headers, timeout=30) as client:
        for number in range(ROUNDS):
            tell(f"round {number + 1} of {ROUNDS}")
            for watched, times in ((False, by_sync), (True, by_file)):
                directory = one.directory / ("watched" if watched else "mirror")
                with client.stream("POST", "/v1/chat/completions", json=_long()) as stream:
                    lines = stream.iter_lines()
                    next(lines)
                    _write(directory, withdrawn=False)
                    if not watched:
                        one.run("advisories", "sync", "--directory", "mirror")
                    times.append(_until(client, serves=False))
                    broken += "data: [DONE]" not in list(lines)
                _write(directory, withdrawn=True)
                if not watched:
                    one.run("advisories", "sync", "--directory", "mirror")
                wait_for(lambda: _serves(client), "the fleet to serve again", timeout_s=10)
    return by_sync, by_file, broken


def _until(client: httpx2.Client, *, serves: bool) -> float:
    began = time.perf_counter()
    while _serves(client) is not serves:
        time.sleep(0.005)
    return time.perf_counter() - began


def _serves(client: httpx2.Client) -> bool:
    return client.post("/v1/chat/completions", json=_QUESTION).status_code == 200


def _long() -> dict[str, object]:
    return {**_QUESTION, "max_tokens": 150, "stream": True}


def _write(directory: Path, *, withdrawn: bool) -> None:
    now = dt.datetime.now(dt.UTC).isoformat()
    record = {
        "id": f"CVE-2026-{directory.name}",
        "modified": now,
        "affected": [
            {
                "package": {"ecosystem": "PyPI", "name": "pilothouse"},
                "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}],
            }
        ],
        "database_specific": {"severity": "CRITICAL"},
        **({"withdrawn": now} if withdrawn else {}),
    }
    aside = directory / "new"
    aside.write_text(json.dumps(record))
    aside.replace(directory / "record.json")


if __name__ == "__main__":
    main("engines", measure())
