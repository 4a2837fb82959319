"""A whole fleet of fake engines, by the program alone: what an operator types, and what it leaves."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import msgspec
import pytest

from pilothouse.cli.activity import Activity
from pilothouse.cli.exits import Exit
from pilothouse.model.fleet import ReplicaState

if TYPE_CHECKING:
    from tests.conftest import Pilothouse

QUESTION = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
ENDLESS = {**QUESTION, "max_tokens": 100_000, "stream": True}

pytestmark = pytest.mark.timeout(60)


def ready(program: "subprocess.Popen[str]") -> str:
    """What a foreground `up` prints when it is ready."""
    assert program.stdout is not None
    printed = ""
    for line in program.stdout:
        printed += line
        if line.startswith("print("):
            return printed
    assert program.stderr is not None
    raise AssertionError(program.stderr.read())


@contextlib.contextmanager
def open_stream(pilothouse: "Pilothouse", body: dict[str, object]) -> Iterator[httpx2.Response]:
    """A streamed answer of which the head has come."""
    with pilothouse.client() as client, client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        yield response


def test_a_fleet_in_the_background_from_up_to_down(pilothouse: "Pilothouse") -> None:
    printed = pilothouse.run("up", pilothouse.fake_fleet(step_base_ms=1), "--detach")
    assert f"gateway  {pilothouse.url()}/v1\n" in printed
    key = pilothouse.key()
    assert key.startswith("ph_")
    assert f"API key  {key}\n" in printed

    found = pilothouse.status()
    assert found.ready
    assert [each.state for each in found.replicas] == [ReplicaState.READY] * 2
    assert pilothouse.url() == f"http://{found.gateway}"
    assert "fake-0" in pilothouse.run("status")
    assert "worker serves" in pilothouse.run("logs", "worker-0")
    assert "starts" in pilothouse.run("logs", "fake-1", "--lines", "5")
    assert pilothouse.run("chat", "hello").strip()
    assert pilothouse.run("chat", "--model", "fake", stdin="from a pipe").strip()
    seen = msgspec.json.decode(pilothouse.run("top", "--once", "--json", "--interval", "0.3"), type=Activity)
    assert (seen.ready, seen.workers, [each.model for each in seen.models]) == (True, 1, ["fake"])
    assert "fleet default: ready, 1 worker" in pilothouse.run("top", "--once", "--interval", "0.3")
    assert '"failed": 0' in pilothouse.run("bench", "--requests", "4", "--max-tokens", "4", "--json")

    again = pilothouse.attempt("up", pilothouse.fake_fleet(step_base_ms=1))
    assert again.returncode == Exit.ERROR
    assert "already running" in again.stderr

    pilothouse.run("down")
    assert pilothouse.processes() == []
    assert pilothouse.attempt("status").returncode == Exit.ERROR
    assert "not running" in pilothouse.attempt("down").stderr


def test_the_examples_work_as_pasted_and_the_key_stays(pilothouse: "Pilothouse") -> None:
    fleet = pilothouse.fake_fleet(step_base_ms=1)
    first = pilothouse.run("up", fleet, "--detach")
    [curl] = [line for line in first.splitlines() if line.startswith("curl ")]
    answered = subprocess.run(["/bin/sh", "-c", f"{curl} -sS"], capture_output=True, text=True, check=True)
    assert '"chat.completion"' in answered.stdout
    snippet = first[first.index("from openai import OpenAI") :]
    said = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, check=True)
    assert said.stdout.strip()
    key = pilothouse.key()
    pilothouse.run("down")
    assert f"API key  {key}" in pilothouse.run("up", fleet, "--detach")


def test_secrets_are_the_owner_s_and_the_key_is_stored_as_a_hash(pilothouse: "Pilothouse") -> None:
    pilothouse.run("up", pilothouse.fake_fleet(), "--detach")
    key = pilothouse.key().encode()
    files = [path for path in pilothouse.home.rglob("*") if path.is_file()]
    with_key = {path.name for path in files if key in path.read_bytes()}
    assert with_key == {"credentials"}
    open_to_others = {str(path) for path in files if path.stat().st_mode & 0o077 and path.suffix != ".yaml"}
    assert open_to_others == set()


def test_ctrl_c_stops_a_fleet_in_the_foreground(pilothouse: "Pilothouse") -> None:
    program = pilothouse.start("up", pilothouse.fake_fleet())
    printed = ready(program)
    assert pilothouse.url() in printed
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to its whole foreground group
    _, messages = program.communicate()
    assert program.returncode == Exit.OK
    assert messages.splitlines()[-1] == "stopped"
    assert "Traceback" not in messages
    assert pilothouse.processes() == []


def test_ctrl_c_before_it_is_ready_interrupts_it(pilothouse: "Pilothouse") -> None:
    program = pilothouse.start("up", pilothouse.fake_fleet(startup_delay_s=600))
    pilothouse.wait_for(pilothouse.paths().snapshot.exists, "the controller is there")
    program.send_signal(signal.SIGINT)
    printed, _ = program.communicate()
    assert program.returncode == Exit.INTERRUPTED
    assert printed == ""
    assert pilothouse.processes() == []


def test_ctrl_c_while_waiting_for_a_fleet_in_the_background_leaves_nothing(pilothouse: "Pilothouse") -> None:
    program = pilothouse.start("up", pilothouse.fake_fleet(startup_delay_s=600), "--detach")
    pilothouse.wait_for(pilothouse.paths().snapshot.exists, "the controller is there")
    program.send_signal(signal.SIGINT)
    program.communicate()
    assert program.returncode == Exit.INTERRUPTED
    assert pilothouse.processes() == []


def test_running_answers_end_before_the_fleet_does(pilothouse: "Pilothouse") -> None:
    program = pilothouse.start("up", pilothouse.fake_fleet(step_base_ms=20, drain_timeout_s=50))
    ready(program)
    body = {**QUESTION, "max_tokens": 40, "stream": True}
    with open_stream(pilothouse, body) as response:
        lines = response.iter_lines()
        next(lines)
        program.send_signal(signal.SIGTERM)
        assert [line for line in lines if line][-1] == "data: [DONE]"
    program.communicate()
    assert program.returncode == Exit.OK


def test_workers_are_replaced_under_load_without_a_failed_request(pilothouse: "Pilothouse") -> None:
    fleet = Path(pilothouse.fake_fleet(step_base_ms=1))
    pilothouse.run("up", str(fleet), "--detach")
    stop = threading.Event()
    statuses: list[int] = []

    def ask() -> None:
        with pilothouse.client() as client:
            while not stop.is_set():
                statuses.append(client.post("/v1/chat/completions", json=QUESTION).status_code)

    with (
        ThreadPoolExecutor(4) as pool,
        open_stream(pilothouse, {**QUESTION, "max_tokens": 900, "stream": True}) as long,
    ):
        lines = long.iter_lines()
        next(lines)
        asking = [pool.submit(ask) for _ in range(4)]
        try:
            old = pilothouse.child("worker-0")
            fleet.write_text(fleet.read_text().replace("gateway: {", "gateway: {workers: 2, "))
            assert pilothouse.attempt("restart").stderr.splitlines()[-1] == "2 new workers serve"
            assert {each.name for each in pilothouse.record().children} == {"controller", "worker-1", "worker-2"}
            assert [line for line in lines if line][-1] == "data: [DONE]", "the old worker finishes its stream"
            before = len(statuses)
            pilothouse.wait_for(lambda: len(statuses) > before + 20, "the new workers serve")
        finally:
            stop.set()
        for each in asking:
            each.result()
    assert set(statuses) == {200}
    assert not Path(f"/proc/{old}").exists()
    pilothouse.run("restart")
    assert {each.name for each in pilothouse.record().children} == {"controller", "worker-0", "worker-3"}


def test_a_restart_with_a_broken_file_changes_nothing(pilothouse: "Pilothouse") -> None:
    fleet = Path(pilothouse.fake_fleet())
    pilothouse.run("up", str(fleet), "--detach")
    worker = pilothouse.child("worker-0")
    fleet.write_text(fleet.read_text().replace("gateway:", "gatewai:"))
    refused = pilothouse.attempt("restart")
    assert refused.returncode == Exit.ERROR
    assert "did you mean 'gateway'?" in refused.stderr
    assert pilothouse.child("worker-0") == worker


def test_a_second_ctrl_c_does_not_wait_for_running_answers(pilothouse: "Pilothouse") -> None:
    program = pilothouse.start("up", pilothouse.fake_fleet(script='{"stall_after": 1}', drain_timeout_s=600))
    ready(program)
    with open_stream(pilothouse, ENDLESS) as response:
        lines = response.iter_lines()
        next(lines)
        program.send_signal(signal.SIGINT)
        log = pilothouse.paths().logs_dir / "worker-0.log"
        pilothouse.wait_for(lambda: "worker drains" in log.read_text(), "the worker drains")
        program.send_signal(signal.SIGINT)
        _, messages = program.communicate()
        with contextlib.suppress(httpx2.HTTPError):
            assert "data: [DONE]" not in list(lines)
    assert "stopping at once" in messages
    assert pilothouse.processes() == []


def test_a_terminal_that_is_closed_takes_its_fleet_along(pilothouse: "Pilothouse") -> None:
    program, terminal = pilothouse.start_in_terminal("up", pilothouse.fake_fleet())
    os.set_blocking(terminal, False)
    shown = b""

    def is_ready() -> bool:
        nonlocal shown
        with contextlib.suppress(BlockingIOError):
            shown += os.read(terminal, 65536)
        return b"Ctrl-C stops the fleet" in shown

    try:
        pilothouse.wait_for(is_ready, "the fleet is ready")
    finally:
        os.close(terminal)
    program.wait()
    assert pilothouse.processes() == []


def test_a_port_in_use_is_told_with_its_holder_before_anything_starts(pilothouse: "Pilothouse") -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = pilothouse.attempt("up", pilothouse.fake_fleet(), "--set", f"gateway.listen=127.0.0.1:{port}")
    assert refused.returncode == Exit.ERROR
    assert f"gateway.listen: 127.0.0.1:{port} is in use by " in refused.stderr
    assert f"(process {os.getpid()})" in refused.stderr
    assert pilothouse.processes() == []


def test_a_replica_that_keeps_crashing_fails_the_start_with_its_last_words(pilothouse: "Pilothouse") -> None:
    failed = pilothouse.attempt("up", pilothouse.fake_fleet(no_such_option=1))
    assert failed.returncode == Exit.ERROR
    assert failed.stdout == ""
    assert "no-such-option" in failed.stderr
    assert "pilothouse explain replica_crash_loop" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert pilothouse.processes() == []


def test_weights_with_another_checksum_are_refused_before_anything_starts(pilothouse: "Pilothouse") -> None:
    weights = pilothouse.home / "weights.gguf"
    weights.write_bytes(b"GGUF")
    fleet = pilothouse.home / "fleet.yaml"
    fleet.write_text(
        "models:\n  m:\n    deployments:\n      - name: m\n        engine: llamacpp\n"
        f"        weights: {{source: 'file:{weights}', sha256: {'ab' * 32}}}\n"
    )
    ports = ("--set", "gateway.listen=127.0.0.1:0", "--set", "controller.listen=127.0.0.1:0")
    refused = pilothouse.attempt("up", *ports)
    assert refused.returncode == Exit.ERROR
    assert "pilothouse explain checksum_mismatch" in refused.stderr
    assert pilothouse.processes() == []


def test_a_controller_that_cannot_run_fails_the_start_with_its_last_words(pilothouse: "Pilothouse") -> None:
    fleet = pilothouse.fake_fleet()
    pilothouse.paths().create()
    pilothouse.paths().control_socket.mkdir()  # nothing can be bound there
    failed = pilothouse.attempt("up", fleet, "--detach")
    assert failed.returncode == Exit.ERROR
    assert "controller ended" in failed.stderr
    assert "pilothouse explain process_crash_loop" in failed.stderr
    pilothouse.paths().control_socket.rmdir()


def test_a_reload_takes_a_good_file_and_leaves_a_bad_one(pilothouse: "Pilothouse") -> None:
    fleet = Path(pilothouse.fake_fleet())
    pilothouse.run("up", str(fleet), "--detach")
    good = fleet.read_text()

    fleet.write_text(good.replace("replicas: 2", "replicsa: 1"))
    refused = pilothouse.attempt("config", "reload")
    assert refused.returncode == Exit.ERROR
    assert "default.yaml:8" in refused.stderr
    assert "did you mean 'replicas'?" in refused.stderr
    assert len(pilothouse.status().replicas) == 2

    fleet.write_text(good.replace("replicas: 2", "replicas: 1"))
    assert "replicas 2 -> 1" in pilothouse.run("config", "reload")
    pilothouse.wait_for(lambda: len(pilothouse.status().replicas) == 1, "one replica is drained")

    fleet.write_text(good)
    os.kill(pilothouse.record().process.pid, signal.SIGHUP)
    pilothouse.wait_for(lambda: len(pilothouse.status().replicas) == 2, "SIGHUP reloads, too")


def test_two_fleets_run_side_by_side_and_have_to_be_named(pilothouse: "Pilothouse") -> None:
    for name in ("one", "two"):
        pilothouse.run("up", pilothouse.fake_fleet(name), "--detach")
    try:
        unnamed = pilothouse.attempt("status")
        assert unnamed.returncode == Exit.ERROR
        assert "one, two" in unnamed.stderr
        assert "fleet two: ready" in pilothouse.run("status", "--fleet", "two")
        pilothouse.env["PILOTHOUSE_FLEET"] = "one"
        assert "fleet one: ready" in pilothouse.run("status")
    finally:
        for name in ("one", "two"):
            pilothouse.run("down", "--fleet", name)
    assert pilothouse.processes() == []
