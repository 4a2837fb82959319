import json
from pathlib import Path

import msgspec
import pytest

from pilothouse.cli.main import run as command
from pilothouse.config import fleet_file
from pilothouse.simulator.html_report import render
from pilothouse.simulator.metrics import Slo, Spread, figures
from pilothouse.simulator.scenario import Scenario, ScenarioInvalid, estimates_in, run
from pilothouse.simulator.study import Estimate, StudyResult, Variant, combinations, run_study

FLEET = """
models:
  demo:
    deployments:
      - {name: own, engine: fake, replicas: 2}
      - {name: rented, engine: fake, replicas: 1}
simulate:
  workload:
    rate_per_s: 4
    duration_s: 30
    turns: 2
    think_s: 1
    prefixes: 2
    tenants: [{name: acme, share: 2}, {name: other}]
  engine: {profile: llama-3.1-8b-l4, price_per_gpu_hour: 0.8}
  deployments:
    rented: {hosted: {ttft_s: 0.4, tokens_per_s: 80.0}}
  faults: [{kind: slow, replica: 0, at_s: 5.0, for_s: 5.0, factor: 2.0}]
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return path


def scenario(path: Path, **overrides: str) -> Scenario:
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    return Scenario.of(fleet_file.load(path, overrides=keys, env={}))


def test_a_fleet_file_runs_in_virtual_time(fleet: Path) -> None:
    made = scenario(fleet)
    found = figures(run(made, 0), Slo(ttft_s=2, tpot_s=0.1))
    assert found.served == found.turns > 150
    assert [each.replica for each in found.replicas] == ["own-0", "own-1", "rented-0"]
    assert {each.tenant for each in found.tenants} == {"acme", "other"}
    assert sum(each.turns for each in found.tenants) == found.turns
    assert 0 < found.cached_ratio < 1
    assert found.cost == pytest.approx(2 * 0.8 * found.duration_s / 3600)
    assert sum(each.arrived for each in found.windows) == found.turns
    area = sum(each.waiting + each.running for each in found.windows) * (found.windows[1].start_s)
    assert area == pytest.approx(found.latency_s.mean * found.turns, rel=1e-6)
    assert estimates_in(made) == {"llama-3.1-8b-l4"}


def test_the_same_seed_gives_the_same_bytes(fleet: Path) -> None:
    made = scenario(fleet)
    one, same, other = (msgspec.json.encode(figures(run(made, seed), Slo(ttft_s=2, tpot_s=0.1))) for seed in (3, 3, 4))
    assert one == same != other


def test_what_cannot_run_is_said(fleet: Path) -> None:
    with pytest.raises(ScenarioInvalid, match="no model nothing"):
        scenario(fleet, simulate__model="nothing")
    with pytest.raises(ScenarioInvalid, match="do not fit"):
        run(scenario(fleet, simulate__engine__profile="llama-3.1-70b-h100"), 0)
    with pytest.raises(ScenarioInvalid, match="there is no profile"):
        run(scenario(fleet, simulate__engine__profile="abacus"), 0)
    with pytest.raises(ScenarioInvalid, match="known for 2, 4, 8"):
        run(scenario(fleet, simulate__engine__tensor_parallel="3"), 0)


def test_a_study_in_processes_is_one_in_this_process(fleet: Path) -> None:
    values = combinations({"simulate.replicas": ["1", "2"]})
    variants = [
        Variant(values=each, scenario=scenario(fleet, simulate__replicas=each["simulate.replicas"])) for each in values
    ]
    steps: list[None] = []
    alone = run_study(variants, (0, 1), 1, lambda: steps.append(None))
    shared = run_study(variants, (0, 1), 2, lambda: None)
    assert len(steps) == 4
    assert msgspec.json.encode(alone) == msgspec.json.encode(shared)
    few, many = alone
    assert few.summary["ttft_p50_s"].mean >= many.summary["ttft_p50_s"].mean
    page = render(
        StudyResult(name="<x>", pilothouse="1", slo=Slo(ttft_s=1, tpot_s=1), estimates=("l4",), variants=alone)
    )
    assert page.count("<svg") == 2 * 7 + 3
    assert "&lt;x&gt;" in page
    assert "http" not in page


def test_estimates_and_spreads() -> None:
    assert Estimate.of([2.0]).plus_minus is None
    assert Estimate.of([1.0, 3.0]) == Estimate(mean=2.0, plus_minus=pytest.approx(12.706))  # type: ignore[arg-type]
    assert Spread.of(range(101)).p90 == 90
    assert combinations({}) == [{}]


def test_the_command(fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", str(fleet), "--sweep", "simulate.replicas=1,2", "-o", str(tmp_path / "out")]
    assert command(arguments, {}) == 0
    shown = capsys.readouterr()
    assert "replicas=2" in shown.out
    assert "estimate" in shown.err
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [each["values"] for each in written["variants"]] == [{"simulate.replicas": "1"}, {"simulate.replicas": "2"}]
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")


def test_the_command_says_what_is_wrong(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["simulate", str(fleet), "--sweep", "nonsense"], {}) == 1
    assert "expected KEY=A,B,C" in capsys.readouterr().err
    assert command(["simulate", str(fleet), "--set", "simulate.engine.profile=abacus"], {}) == 1
    assert "abacus" in capsys.readouterr().err


def test_the_calibrate_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.jsonl"
    rows = [
        {"request_id": str(n), "input_toks": 20 + n, "output_toks": 10 + n % 5, "queued_ts": n * 0.5,
         "first_token_ts": n * 0.5 + 0.02, "last_token_ts": n * 0.5 + 0.02 + 0.01 * (9 + n % 5)}
        for n in range(20)
    ]  # fmt: skip
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "mine.json"
    assert command(["simulate", "calibrate", str(log), "--name", "mine", "--kv-blocks", "500", "-o", str(out)], {}) == 0
    assert json.loads(out.read_text())["kv_blocks"] == 500
    assert command(["simulate", "calibrate", "--name", "mine", "-o", str(out)], {}) == 1
    assert "give one of" in capsys.readouterr().err
