"""kill -9 of a replica, the controller and the worker under load: who notices, and how soon all is back."""

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import Home, home, wait_for

CLIENTS = 64
WORKER_BACK_S = 1.0
FLEET = """
models:
  fake:
    deployments:
      - name: fake
        engine: {name: fake, args: {step-base-ms: 5, output-tokens-min: 100, output-tokens-max: 200}}
        replicas: 2
"""


class Load:
    """64 clients that stream one answer after the other, each on a connection of its own."""

    def __init__(self, one: Home, clients: int = CLIENTS) -> None:
        self._home = one
        self._headers = {"authorization": f"Bearer {one.key()}"}
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._client, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _client(self) -> None:
        body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        with httpx2.Client(base_url=self._home.url, headers=self._headers, timeout=60) as client:
            while not self._stop.is_set():
                outcome = self._one(client, body)
                with self._lock:
                    self.outcomes[outcome] += 1

    def _one(self, client: httpx2.Client, body: dict[str, Any]) -> str:
        try:
            answer = client.post("/v1/chat/completions", json=body)
        except httpx2.HTTPError as error:
            time.sleep(0.02)
            return f"transport: {type(error).__name__}"
        if answer.status_code != 200:
            return f"{answer.status_code} {answer.json()['error']['code']}"
        if '"error"' in answer.text:
            return "event " + answer.text.rsplit('"code":"', 1)[1].split('"')[0]
        return "ok" if answer.text.endswith("data: [DONE]\n\n") else "cut"

    def end(self) -> Counter[str]:
        """Let every client finish what it has."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        return self.outcomes


def measure() -> list[Bar]:
    """One fleet, three kills."""
    with home() as one:
        fleet_file = one.directory / "kills.yaml"
        fleet_file.write_text(FLEET)
        one.run("up", "--detach", str(fleet_file))
        return [*_replica(one), *_controller(one), *_worker(one)]


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _replicas(one: Home) -> dict[str, dict[str, Any]]:
    return {replica["id"]: replica for replica in one.status()["replicas"]}


def _replica(one: Home) -> list[Bar]:
    tell("kill -9 of a replica")
    load = Load(one)
    time.sleep(2)
    victim = _replicas(one)["fake-0"]
    busy = victim["in_flight"]
    _kill(victim["pid"])
    back = wait_for(lambda: _is_back(one, victim["pid"]), "the replica's return", every_s=0.1)
    time.sleep(1)
    outcomes = load.end()
    failed = {what: count for what, count in outcomes.items() if what != "ok"}
    proper = all(what in ("event replica_lost", "502 replica_lost") for what in failed)
    count = sum(failed.values())
    return [
        Bar(
            name="kill -9 of a replica: requests that fail",
            limit=f"those in flight on it (<= {CLIENTS // 2 + 4}), each with a proper error",
            measured=f"{count} of {sum(outcomes.values())} ({failed}; {busy} in flight a moment before)",
            passed=0 < count <= CLIENTS // 2 + 4 and proper,
        ),
        Bar(name="the replica is back by itself", limit="yes", measured=f"after {back:.1f} s", passed=True),
    ]


def _is_back(one: Home, old: int) -> bool:
    replica = _replicas(one)["fake-0"]
    return replica["state"] == "Ready" and replica["pid"] not in (None, old)


def _processes(one: Home, marker: str) -> list[int]:
    return [pid for pid in one.processes() if marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _controller(one: Home) -> list[Bar]:
    tell("kill -9 of the controller")
    before = {name: replica["pid"] for name, replica in _replicas(one).items()}
    load = Load(one)
    time.sleep(1)
    (controller,) = _processes(one, "pilothouse.cli.controller_process")
    _kill(controller)
    wait_for(lambda: _processes(one, "pilothouse.cli.controller_process") not in ([], [controller]), "a new controller")
    wait_for(lambda: _ready(one), "the fleet's readiness")
    time.sleep(1)
    outcomes = load.end()
    after = {name: replica["pid"] for name, replica in _replicas(one).items()}
    failed = {what: count for what, count in outcomes.items() if what != "ok"}
    return [
        Bar(
            name="kill -9 of the controller: requests that fail",
            limit="0",
            measured=f"{sum(failed.values())} of {sum(outcomes.values())}",
            passed=not failed,
        ),
        Bar(
            name="the new controller adopts the replicas",
            limit="same pids",
            measured="same pids" if after == before else f"{before} became {after}",
            passed=after == before,
        ),
    ]


def _ready(one: Home) -> bool:
    try:
        return bool(one.status()["ready"])
    except RuntimeError:
        return False  # the new controller does not listen yet


def _worker(one: Home) -> list[Bar]:
    tell("kill -9 of the worker")
    load = Load(one, clients=8)
    time.sleep(1)
    (worker,) = _processes(one, "pilothouse.gateway.worker")
    headers = {"authorization": f"Bearer {one.key()}"}
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}

    def serves() -> bool:
        try:
            return httpx2.post(f"{one.url}/v1/chat/completions", json=body, headers=headers).status_code == 200
        except httpx2.HTTPError:
            return False

    _kill(worker)
    back = wait_for(serves, "the worker's return", every_s=0.005)
    load.end()
    wait_for(lambda: one.gauge("pilothouse_in_flight_requests") == 0, "nothing in flight")
    return [
        Bar(
            name="kill -9 of the worker: time to the next answer",
            limit=f"< {WORKER_BACK_S:g} s",
            measured=f"{back:.2f} s",
            passed=back < WORKER_BACK_S,
        )
    ]


if __name__ == "__main__":
    main("foundation", measure())
