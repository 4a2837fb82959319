"""`pilothouse tenants`, `keys` and `usage` on a running fleet of fake engines."""

import json
import time
from typing import TYPE_CHECKING, Any

import httpx2
import pyarrow.parquet as pq
import pytest

from pilothouse.model.ids import DeploymentName, KeyId, ModelName, OrganisationId, RequestId, TenantId
from pilothouse.model.ledger import LedgerRow, Outcome
from pilothouse.model.units import WallNs
from pilothouse.store.ledger import Ledger

if TYPE_CHECKING:
    from tests.conftest import Pilothouse


def status_with(pilothouse: "Pilothouse", secret: str) -> int:
    """What a call of the data plane with this key is answered."""
    headers = {"authorization": f"Bearer {secret}"}
    return httpx2.get(f"{pilothouse.url()}/v1/models", headers=headers, timeout=5.0, trust_env=False).status_code


def test_the_life_of_tenants_and_keys(pilothouse: "Pilothouse") -> None:
    pilothouse.run("up", pilothouse.fake_fleet(), "--detach")
    created = pilothouse.run("tenants", "create", "web", "--organisation", "acme", "--tokens-per-minute", "5000")
    assert created == "web\n"
    secret = pilothouse.run("keys", "create", "web", "--name", "ci", "--network", "127.0.0.0/8").strip()
    assert secret.startswith("ph_")
    [key] = json.loads(pilothouse.run("keys", "list", "--tenant", "web", "--json"))
    assert (key["name"], key["networks"]) == ("ci", ["127.0.0.0/8"])
    assert status_with(pilothouse, secret) == 200

    shown = json.loads(pilothouse.run("tenants", "update", "web", "--money-per-month", "12.5", "--tier", "batch"))
    assert shown == json.loads(pilothouse.run("tenants", "show", "web"))
    assert shown["limits"]["total_tokens"]["per_minute"] == 5000
    assert shown["limits"]["budgets"][0]["nano_money"] == 12_500_000_000
    assert "5000 tokens/min, budget a month" in pilothouse.run("tenants", "list", "--organisation", "acme")

    rotated: dict[str, Any] = json.loads(pilothouse.run("keys", "rotate", key["id"], "--grace", "60", "--json"))
    assert [status_with(pilothouse, each) for each in (secret, rotated["secret"])] == [200, 200]
    pilothouse.run("keys", "revoke", key["id"])
    began = time.monotonic()
    while status_with(pilothouse, secret) != 401:
        assert time.monotonic() < began + 1.0, "a revoked key was accepted for longer than a second"
    renamed = json.loads(pilothouse.run("keys", "update", rotated["key"]["id"], "--name", "new"))
    assert renamed["name"] == json.loads(pilothouse.run("keys", "show", rotated["key"]["id"]))["name"] == "new"
    again = pilothouse.run("tenants", "rotate", "web").split()
    assert again[0] == rotated["key"]["id"]
    pilothouse.run("tenants", "revoke", "web")
    pilothouse.wait_for(lambda: status_with(pilothouse, again[2]) == 401, "the tenant's keys are refused", 1.0)
    assert "there is no tenant nobody" in pilothouse.attempt("tenants", "show", "nobody").stderr


def test_usage_is_told_in_every_form(pilothouse: "Pilothouse") -> None:
    pilothouse.run("up", pilothouse.fake_fleet(), "--detach")
    with Ledger(pilothouse.paths().database) as ledger:
        ledger.insert(
            [
                LedgerRow(
                    id=RequestId(f"req_{number}"),
                    organisation=OrganisationId("acme"),
                    tenant=TenantId("web"),
                    key=KeyId("key_1"),
                    model=ModelName("m"),
                    deployment=DeploymentName("d"),
                    started_at=WallNs(1_790_000_000_000_000_000),
                    ended_at=WallNs(1_790_000_001_000_000_000),
                    outcome=Outcome.COMPLETED,
                    input_tokens=10,
                    output_tokens=5,
                    nano_cost=500_000_000,
                )
                for number in range(3)
            ]
        )
    [row] = json.loads(pilothouse.run("usage", "--json"))
    assert (row["tenant"], row["turns"], row["input_tokens"], row["cost"]) == ("web", 3, 30, 1.5)
    text = pilothouse.run("usage", "--by", "day", "--csv")
    assert text == (
        "day,turns,input_tokens,cached_tokens,output_tokens,reasoning_tokens,cost\n2026-09-21,3,30,0,15,0,1.5\n"
    )
    assert pilothouse.run("usage", "--csv", "--last-day", "2020-01-01").count("\n") == 1
    assert "web" in pilothouse.run("usage")
    path = pilothouse.home / "usage.parquet"
    pilothouse.run("usage", "--parquet", str(path))
    assert pq.read_table(path).to_pylist() == [row]


@pytest.mark.parametrize("arguments", [("tenants", "list"), ("keys", "list"), ("usage",)])
def test_a_fleet_that_does_not_run_is_said(pilothouse: "Pilothouse", arguments: tuple[str, ...]) -> None:
    assert "not running" in pilothouse.attempt(*arguments).stderr


def test_limits_hold_for_all_workers_together_and_every_turn_is_on_record(pilothouse: "Pilothouse") -> None:
    pilothouse.run("up", pilothouse.fake_fleet(), "--set", "gateway.workers=2", "--detach")
    pilothouse.run("tenants", "create", "web", "--organisation", "acme", "--requests-per-minute", "5")
    secret = pilothouse.run("keys", "create", "web").strip()
    pilothouse.wait_for(lambda: status_with(pilothouse, secret) == 200, "the key is known")
    question = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
    statuses = []
    for stream in (False, True) * 5:
        # A connection each, so that both workers get some.
        answer = httpx2.post(
            f"{pilothouse.url()}/v1/chat/completions",
            json={**question, "stream": stream},
            headers={"authorization": f"Bearer {secret}"},
            timeout=10.0,
            trust_env=False,
        )
        statuses.append(answer.status_code)
        if answer.status_code == 429:
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.headers["x-ratelimit-limit-requests"] == "5"
    assert statuses.count(200) == 5, statuses

    def usage() -> list[dict[str, Any]]:
        return [row for row in json.loads(pilothouse.run("usage", "--json")) if row["tenant"] == "web"]

    pilothouse.wait_for(lambda: bool(usage()) and usage()[0]["turns"] == 5, "the turns are in the ledger")
    assert usage()[0]["output_tokens"] == 15
