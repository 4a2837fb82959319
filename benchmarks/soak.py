"""Mixed load with random kills, stalls, disconnects, reloads and restarts, and what is left when it ends.

`python -m benchmarks.soak MINUTES`
"""

import contextlib
import json
import os
import random
import signal
import socket
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx2

from benchmarks import load
from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import Home, home, wait_for

CLIENTS_OF_A_KIND = 4
CHAOS_EVERY_S = 8.0
SETTLE_S = 20.0
GROWTH_LIMIT_MIB = 25.0
SEED = 7
PATH = "/v1/chat/completions"
FLEET = """
models:
  fake:
    deployments:
      - name: fake
        engine: {{name: fake, args: {{step-base-ms: 2, output-tokens-min: 5, output-tokens-max: 60}}}}
        replicas: {replicas}
gateway:
  workers: 2
  limits: {{first_byte_timeout_s: 5, stream_idle_timeout_s: 5, drain_timeout_s: 5}}
  access_log: {{sample: 0.1}}
"""


class Soak:
    """One fleet under load."""

    def __init__(self, one: Home) -> None:
        self._home = one
        self._file = one.directory / "soak.yaml"
        self._replicas = 2
        self._write_fleet()
        one.run("up", "--detach", str(self._file))
        self._headers = {"authorization": f"Bearer {one.key()}"}
        host, port = one.url.removeprefix("http://").split(":")
        self._address = (host, int(port))
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self.chaos: Counter[str] = Counter()
        self.resident_mib: list[tuple[float, float]] = []

    def _write_fleet(self) -> None:
        self._file.write_text(FLEET.format(replicas=self._replicas))

    # Clients.

    def _count(self, outcome: str) -> None:
        with self._lock:
            self.outcomes[outcome] += 1

    def _repeat(self, ask: Callable[[httpx2.Client, random.Random], str], seed: int) -> None:
        chance = random.Random(seed)
        while not self._stop.is_set():
            with httpx2.Client(base_url=self._home.url, headers=self._headers, timeout=30) as client:
                for _ in range(50):
                    if self._stop.is_set():
                        break
                    try:
                        self._count(ask(client, chance))
                    except (httpx2.HTTPError, OSError) as error:
                        self._count(f"transport {type(error).__name__}")
                        time.sleep(0.05)

    def _body(self, chance: random.Random, **more: object) -> dict[str, object]:
        text = f"{chance.random()} " * chance.choice((1, 10, 200, 5000))
        return {"model": "fake", "messages": [{"role": "user", "content": text}], **more}

    def _unary(self, client: httpx2.Client, chance: random.Random) -> str:
        answer = client.post(PATH, json=self._body(chance))
        return f"unary {answer.status_code}" if answer.status_code == 200 else f"unary {answer.json()['error']['code']}"

    def _stream(self, client: httpx2.Client, chance: random.Random) -> str:
        answer = client.post(PATH, json=self._body(chance, stream=True))
        if answer.status_code != 200:
            return f"stream {answer.json()['error']['code']}"
        if answer.text.endswith("data: [DONE]\n\n"):
            return "stream 200"
        return "stream error event" if '"error"' in answer.text.rsplit("data: ", 1)[-1] else "stream CUT"

    def _leaver(self, _: httpx2.Client, chance: random.Random) -> str:
        """Goes away: before the first byte, in the middle, or half-closed; or never finishes its request."""
        body = json.dumps(self._body(chance, stream=chance.random() < 0.7, max_tokens=500)).encode()
        head = f"POST {PATH} HTTP/1.1\r\nhost: h\r\nauthorization: {self._headers['authorization']}\r\n"
        data = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        with socket.create_connection(self._address, timeout=5) as connection:
            kind = chance.randrange(4)
            connection.sendall(data[: len(data) // 2] if kind == 0 else data)
            if kind == 1:
                connection.shutdown(socket.SHUT_WR)
            if kind == 2:
                with contextlib.suppress(TimeoutError, ConnectionError):
                    connection.recv(4096)
            time.sleep(chance.random() * 0.1)
        return "left"

    def _nonsense(self, _: httpx2.Client, chance: random.Random) -> str:
        with socket.create_connection(self._address, timeout=5) as connection:
            connection.sendall(
                chance.choice((b"\x16\x03\x01", b"GET / HTTP/1.1\n\n", b"POST / HTTP/1.1\r\nHost: h\r\n"))
            )
            time.sleep(0.05)
        return "nonsense"

    def _slow_reader(self, _: httpx2.Client, chance: random.Random) -> str:
        body = json.dumps(self._body(chance, stream=True, max_tokens=300)).encode()
        head = f"POST {PATH} HTTP/1.1\r\nhost: h\r\nauthorization: {self._headers['authorization']}\r\n"
        with socket.create_connection(self._address, timeout=10) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            with contextlib.suppress(TimeoutError, ConnectionError):
                while connection.recv(2048):
                    time.sleep(0.02)
        return "slow"

    # Chaos.

    def _processes(self) -> dict[str, int]:
        status = self._home.status()
        found = {replica["id"]: replica["pid"] for replica in status["replicas"] if replica.get("pid")}
        found |= {f"worker-{worker['index']}": worker["pid"] for worker in status["workers"]}
        return found

    def _disturb(self, chance: random.Random) -> None:
        kind = chance.choice(("replica", "replica", "stall", "worker", "reload", "restart"))
        with contextlib.suppress(RuntimeError, ProcessLookupError, KeyError, IndexError):
            processes = self._processes()
            replicas = [pid for name, pid in processes.items() if not name.startswith("worker-")]
            workers = [pid for name, pid in processes.items() if name.startswith("worker-")]
            if kind == "replica":
                os.kill(chance.choice(replicas), signal.SIGKILL)
            elif kind == "stall":
                pid = chance.choice(replicas)
                os.kill(pid, signal.SIGSTOP)
                time.sleep(chance.random() * 2)
                os.kill(pid, signal.SIGCONT)
            elif kind == "worker":
                os.kill(chance.choice(workers), signal.SIGKILL)
            elif kind == "reload":
                self._replicas = 5 - self._replicas
                self._write_fleet()
                self._home.run("config", "reload")
            else:
                self._home.run("restart")
            self.chaos[kind] += 1

    def _measure(self, at: float) -> None:
        with contextlib.suppress(RuntimeError, OSError, KeyError):
            workers = self._home.status()["workers"]
            resident = [load.resident_bytes(worker["pid"]) / 2**20 for worker in workers if _lives(worker["pid"])]
            self.resident_mib.append((at, max(resident)))

    def run(self, minutes: float) -> None:
        """The load, for so long."""
        kinds = (self._unary, self._stream, self._leaver, self._nonsense, self._slow_reader)
        threads = [
            threading.Thread(target=self._repeat, args=(kind, SEED + number * 10 + index), daemon=True)
            for index, kind in enumerate(kinds)
            for number in range(CLIENTS_OF_A_KIND)
        ]
        for thread in threads:
            thread.start()
        chance = random.Random(SEED)
        began = time.monotonic()
        told = 0
        while (at := time.monotonic() - began) < minutes * 60:
            time.sleep(CHAOS_EVERY_S)
            self._disturb(chance)
            self._measure(at)
            if at // 60 > told:
                told = int(at // 60)
                tell(f"{told} min: {sum(self.outcomes.values())} requests, {sum(self.chaos.values())} disturbances")
        self._stop.set()
        for thread in threads:
            thread.join(60)

    # What is left.

    def bars(self, minutes: float) -> list[Bar]:
        """The verdicts, once all has had time to settle."""
        wait_for(lambda: self._home.status()["ready"], "the fleet is ready again", timeout_s=60)
        wait_for(lambda: self._in_flight() == 0, "nothing is in flight", timeout_s=SETTLE_S)
        time.sleep(3)
        in_flight, connections = self._in_flight(), self._home.gauge("pilothouse_connections")
        sockets = self._sockets()
        replicas = self._replicas
        processes = len(self._home.processes())
        expected = replicas + 2 + 2  # workers, the controller, the supervisor
        half = [mib for _, mib in self.resident_mib[: len(self.resident_mib) // 2]]
        rest = [mib for _, mib in self.resident_mib[len(self.resident_mib) // 2 :]]
        growth = statistics.mean(rest[-10:] or [0.0]) - statistics.mean(half[-10:] or [0.0])
        cut = self.outcomes["stream CUT"]
        tell(json.dumps({"outcomes": self.outcomes, "disturbances": self.chaos}, indent=1))
        details: dict[str, object] = {"outcomes": dict(self.outcomes), "disturbances": dict(self.chaos)}
        return [
            Bar(
                name="soak: in flight and connections at the end",
                limit="0 and 0",
                measured=f"{in_flight:g} and {connections:g}, {sum(self.outcomes.values())} requests, {minutes:g} min",
                passed=in_flight == 0 and connections == 0 and self.outcomes["unary 200"] > 0,
                details=details,
            ),
            Bar(
                name="soak: sockets of the workers beside listeners and kept connections to replicas",
                limit="0",
                measured=str(sockets),
                passed=sockets == 0,
            ),
            Bar(
                name="soak: processes of the fleet",
                limit=str(expected),
                measured=str(processes),
                passed=processes == expected,
            ),
            Bar(
                name="soak: growth of a worker's memory, second half over first",
                limit=f"<= {GROWTH_LIMIT_MIB:g} MB",
                measured=f"{growth:.1f} MB (at most {max(rest or [0.0]):.0f} MB)",
                passed=growth <= GROWTH_LIMIT_MIB,
            ),
            Bar(
                name="soak: streams that ended without a word",
                limit="0",
                measured=str(cut),
                passed=cut == 0,
            ),
        ]

    def _in_flight(self) -> float:
        return self._home.gauge("pilothouse_in_flight_requests") + self._home.gauge("pilothouse_in_flight_tokens")

    def _sockets(self) -> int:
        """Sockets of the workers that are in no state that they should be in: half-closed ones above all."""
        left = 0
        for worker in self._home.status()["workers"]:
            pid = worker["pid"]
            if not _lives(pid):
                continue
            inodes = {
                target[8:-1]
                for name in os.listdir(f"/proc/{pid}/fd")
                if (target := os.readlink(f"/proc/{pid}/fd/{name}")).startswith("socket:[")
            }
            for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
                row = line.split()
                mine = row[9] in inodes and int(row[1].split(":")[1], 16) == self._address[1]
                left += mine and row[3] != "0A"
        return left


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def measure(minutes: float) -> list[Bar]:
    """A soak of so many minutes."""
    with home() as one:
        soak = Soak(one)
        soak.run(minutes)
        return soak.bars(minutes)


if __name__ == "__main__":
    main("soak", measure(float(sys.argv[1]) if len(sys.argv) > 1 else 120.0))
