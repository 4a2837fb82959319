"""Two workers: one is killed under load, both are replaced under load, and what the second one adds."""

import os
import signal
import threading
import time
from collections import Counter

import httpx2

from benchmarks import load
from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import Home, free_port, home, wait_for
from benchmarks.gateway_worker import start
from benchmarks.peers import before_upstreams

CLIENTS = 16
SCALING_LIMIT = 1.8
FLEET = """
models:
  fake:
    deployments:
      - name: fake
        engine: {name: fake, args: {step-base-ms: 2, output-tokens-min: 20, output-tokens-max: 40}}
        replicas: 2
gateway: {workers: 2}
"""


class Load:
    """Clients that ask one question after the other on connections that they keep, as the official clients do."""

    def __init__(self, one: Home) -> None:
        self._home = one
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._client, daemon=True) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _client(self) -> None:
        body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}
        headers = {"authorization": f"Bearer {self._home.key()}"}
        with httpx2.Client(base_url=self._home.url, headers=headers, timeout=60) as client:
            while not self._stop.is_set():
                try:
                    outcome = str(client.post("/v1/chat/completions", json=body).status_code)
                except httpx2.HTTPError as error:
                    outcome = type(error).__name__
                with self._lock:
                    self.outcomes[outcome] += 1

    def end(self) -> Counter[str]:
        """Let every client finish what it has."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        return self.outcomes


def measure() -> list[Bar]:
    """The kill, the restart, the throughput."""
    with home() as one:
        path = one.directory / "workers.yaml"
        path.write_text(FLEET)
        one.run("up", "--detach", str(path))
        bars = [_kill(one), _restart(one)]
    return [*bars, _scaling()]


def _kill(one: Home) -> Bar:
    tell("kill -9 of one of two workers")
    clients = Load(one)
    time.sleep(2)
    victim = one.status()["workers"][0]["pid"]
    theirs = _connections(victim)
    os.kill(victim, signal.SIGKILL)
    time.sleep(3)
    outcomes = clients.end()
    failed = sum(count for outcome, count in outcomes.items() if outcome != "200")
    return Bar(
        name="kill -9 of one of two workers: requests that fail",
        limit=f"only on its own connections (<= {theirs})",
        measured=f"{failed} of {sum(outcomes.values())}; it had {theirs} of {CLIENTS} connections",
        passed=failed <= theirs < CLIENTS and outcomes["200"] > 0,
        details={"outcomes": dict(outcomes)},
    )


def _connections(pid: int) -> int:
    """Established connections that a worker has accepted on the gateway's port: its sockets less those to replicas."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    with open(f"/proc/{pid}/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    listening = {row[1] for row in rows if row[3] == "0A" and row[9] in inodes}
    return sum(row[3] == "01" and row[9] in inodes and row[1] in listening for row in rows)


def _restart(one: Home) -> Bar:
    tell("restart under load, three times")
    clients = Load(one)
    time.sleep(1)
    for _ in range(3):
        one.run("restart")
        time.sleep(1)
    outcomes = clients.end()
    failed = sum(count for outcome, count in outcomes.items() if outcome != "200")
    return Bar(
        name="restart under load, three times: requests that fail",
        limit="0",
        measured=f"{failed} of {sum(outcomes.values())}",
        passed=failed == 0 and outcomes["200"] > 0,
        details={"outcomes": dict(outcomes)},
    )


def _scaling() -> Bar:
    """Throughput needs cores for the clients, the engines and both workers; with fewer, the cost of a request tells."""
    cores = len(os.sched_getaffinity(0))
    costs, rates = {}, {}
    with before_upstreams([]) as (running, directory):
        for workers in (1, 2):
            scratch = directory / str(workers)
            scratch.mkdir()
            port = free_port()
            processes = start(port, [running["direct"].port], scratch, workers)
            with load.stopping(*processes):
                wait_for(lambda port=port: load.listens(port), "the workers listen")  # type: ignore[misc]
                pids = [process.pid for process in processes]
                load.run(port, pids, scratch, load.body(), connections=32, seconds=1)
                cost = load.run(port, pids, scratch, load.body(), connections=32, seconds=4)
                costs[workers], rates[workers] = cost.cpu_us, cost.requests_per_s
    by_cost = 2 * costs[1] / costs[2]
    by_rate = rates[2] / rates[1]
    enough = cores >= 4
    return Bar(
        name="two workers' throughput / one's",
        limit=f">= {SCALING_LIMIT:g} where cores allow it",
        measured=(
            f"{by_rate:.2f} on {cores} cores"
            if enough
            else f"{cores} cores do not allow it ({by_rate:.2f}); by CPU per request {by_cost:.2f} "
            f"({costs[1]:.1f} us with one, {costs[2]:.1f} with two)"
        ),
        passed=by_rate >= SCALING_LIMIT or not enough,
    )


if __name__ == "__main__":
    main("data_plane", measure())
