"""Every process of a fleet is killed, and the rest carries on."""

import json
import os
import signal
from typing import TYPE_CHECKING

import httpx2
import pytest

from pilothouse.cli.fleet_record import is_alive
from pilothouse.cli.leftovers import living_children

if TYPE_CHECKING:
    from tests.conftest import Pilothouse

pytestmark = pytest.mark.timeout(60)

QUESTION = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}


@pytest.fixture
def fleet(pilothouse: "Pilothouse") -> "Pilothouse":
    """A running fleet of two replicas."""
    pilothouse.run("up", pilothouse.fake_fleet(step_base_ms=1), "--detach")
    return pilothouse


def answers(fleet: "Pilothouse") -> bool:
    with fleet.client() as client:
        return client.post("/v1/chat/completions", json=QUESTION).status_code == 200


def replica_pids(fleet: "Pilothouse") -> dict[str, int | None]:
    return {replica.id: replica.pid for replica in fleet.status().replicas}


def in_flight(fleet: "Pilothouse") -> int:
    return sum(replica.in_flight for replica in fleet.status().replicas)


def kill(pid: int) -> None:
    assert pid > 0
    os.kill(pid, signal.SIGKILL)


def test_a_killed_worker_is_back_and_no_request_is_refused_meanwhile(fleet: "Pilothouse") -> None:
    killed = fleet.child("worker-0")
    kill(killed)
    assert answers(fleet)  # the listening socket is the supervisor's: the request waits for the new worker
    assert fleet.child("worker-0") not in (0, killed)


def test_what_a_killed_worker_had_in_flight_is_forgotten(pilothouse: "Pilothouse") -> None:
    pilothouse.run("up", pilothouse.fake_fleet(script='{"stall_after": 1}'), "--detach")
    body = {**QUESTION, "stream": True}
    with pilothouse.client() as client, client.stream("POST", "/v1/chat/completions", json=body) as stalled:
        lines = stalled.iter_lines()
        next(lines)
        pilothouse.wait_for(lambda: in_flight(pilothouse) == 1, "the request is counted")
        kill(pilothouse.child("worker-0"))
        pilothouse.wait_for(lambda: in_flight(pilothouse) == 0, "nothing is counted any more")


def test_a_killed_controller_adopts_the_replicas_and_serving_goes_on(fleet: "Pilothouse") -> None:
    before, killed = replica_pids(fleet), fleet.child("controller")
    kill(killed)
    assert answers(fleet)
    fleet.wait_for(lambda: fleet.child("controller") not in (0, killed), "there is a new controller")
    fleet.wait_for(lambda: fleet.attempt("status").returncode == 0, "it answers")
    fleet.wait_for(lambda: fleet.status().ready, "it has adopted the replicas")
    assert replica_pids(fleet) == before
    assert answers(fleet)


def test_a_revoked_key_stops_within_a_second_while_the_controller_is_down(fleet: "Pilothouse") -> None:
    fleet.run("tenants", "create", "web")
    secret = fleet.run("keys", "create", "web").strip()
    key = json.loads(fleet.run("keys", "list", "--tenant", "web", "--json"))[0]["id"]
    url, headers = f"{fleet.url()}/v1/models", {"authorization": f"Bearer {secret}"}
    with httpx2.Client(headers=headers, trust_env=False) as client:
        fleet.wait_for(lambda: client.get(url).status_code == 200, "the key is known")
        stopped = fleet.child("controller")
        os.kill(stopped, signal.SIGSTOP)
        try:
            fleet.run("keys", "revoke", key)
            fleet.wait_for(lambda: client.get(url).status_code == 401, "the key is refused", 1.0)
            killed = fleet.child("worker-0")
            kill(killed)
            fleet.wait_for(lambda: fleet.child("worker-0") not in (0, killed), "there is a new worker")
            assert client.get(url).status_code == 401, "nor does a worker that starts then take it"
        finally:
            os.kill(stopped, signal.SIGCONT)
        fleet.wait_for(lambda: json.loads(fleet.run("keys", "show", key))["revoked_at"] is not None, "it is on record")


def test_a_killed_replica_is_started_again(fleet: "Pilothouse") -> None:
    before = replica_pids(fleet)
    killed = before["fake-0"]
    assert killed is not None
    kill(killed)
    assert answers(fleet)
    fleet.wait_for(lambda: replica_pids(fleet)["fake-0"] not in (None, killed), "there is a new process")
    fleet.wait_for(lambda: fleet.status().ready, "it is ready")
    assert replica_pids(fleet)["fake-1"] == before["fake-1"]


def test_a_killed_supervisor_takes_everything_along(fleet: "Pilothouse") -> None:
    record = fleet.record()
    kill(record.process.pid)
    fleet.wait_for(lambda: not living_children(record), "the lifeline ends the children")
    assert fleet.processes() == []
    assert "default is not running" in fleet.attempt("down").stderr
    assert fleet.attempt("status").returncode == 1


def test_down_finds_what_is_left_when_supervisor_and_controller_are_killed(fleet: "Pilothouse") -> None:
    record, controller = fleet.record(), fleet.child("controller")
    kill(record.process.pid)
    kill(controller)
    fleet.wait_for(lambda: not is_alive(record.process), "the supervisor is gone")
    message = fleet.attempt("down").stderr
    assert "fake-0" in message
    assert "fake-1" in message
    assert fleet.processes() == []


def test_the_next_up_adopts_what_two_killed_processes_left(fleet: "Pilothouse") -> None:
    before, record, controller = replica_pids(fleet), fleet.record(), fleet.child("controller")
    kill(record.process.pid)
    kill(controller)
    fleet.wait_for(lambda: not is_alive(record.process), "the supervisor is gone")
    fleet.run("up", fleet.fake_fleet(step_base_ms=1), "--detach")
    assert replica_pids(fleet) == before
    assert answers(fleet)
