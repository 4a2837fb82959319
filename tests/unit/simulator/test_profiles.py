from pathlib import Path

import pytest

from pilothouse.simulator.calibration import Fit, Recorded, calibrate, make_engine, run_alone, turns_of
from pilothouse.simulator.cold_start import cold_start
from pilothouse.simulator.least_squares import fit_relative, relative_errors
from pilothouse.simulator.links import load_links
from pilothouse.simulator.live_fit import Observation, from_observations
from pilothouse.simulator.profile import Profile, Provenance, load, names, save
from pilothouse.simulator.step_times import EngineLimits, touched_ratios

LIMITS = EngineLimits(kv_blocks=1_000)


@pytest.mark.parametrize("name", names())
def test_every_profile_is_whole(name: str) -> None:
    profile = load(name)
    assert profile.name == name
    assert profile.provenance.source
    assert profile.provenance.licence
    assert profile.provenance.estimate or profile.provenance.decode_error
    times = profile.times(LIMITS)
    assert 0 < times.decode_ns(1, 100) < times.decode_ns(64, 64 * 4_000)
    assert times.prefill_ns(64) < times.prefill_ns(2_048)


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    profile = load("qwen3-30b-a3b-h200")
    save(profile, tmp_path / "mine.json")
    assert load(str(tmp_path / "mine.json")) == profile
    with pytest.raises(LookupError, match="llama"):
        load("unknown")


def test_the_l4_is_an_estimate_near_its_published_points() -> None:
    profile = load("llama-3.1-8b-l4")
    times = profile.times(LIMITS)
    assert profile.provenance.estimate
    assert times.decode_ns(1, 2_048) / 1e6 == pytest.approx(63.5, rel=0.05)
    assert times.prefill_ns(2_048) / 1e6 == pytest.approx(431, rel=0.05)


def test_experts_that_tokens_touch() -> None:
    ratios = touched_ratios(128, 8, 64)
    assert [round(128 * ratios[n]) for n in (1, 8, 16, 32, 64)] == [8, 52, 82, 112, 126]


def test_tensor_parallelism_divides_and_pays() -> None:
    one = load("llama-3.1-70b-h100")
    links = load_links("h100-vllm-graph")
    times = [one.sharded(gpus, links[gpus]).times(LIMITS) if gpus > 1 else one.times(LIMITS) for gpus in (1, 2, 4, 8)]
    steps = [each.decode_ns(1, 2_048) for each in times]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] / 8 < steps[-1]
    slow = one.sharded(8, load_links("l40s-nccl")[8]).times(LIMITS)
    assert slow.prefill_ns(2_048) > one.times(LIMITS).prefill_ns(2_048)
    with pytest.raises(ValueError, match="cannot be sharded"):
        one.sharded(2, links[2]).sharded(2, links[2])


def test_least_squares_finds_what_made_the_points() -> None:
    rows = [(1.0, float(n), float(n * n)) for n in range(1, 30)]
    found = fit_relative(rows, [3.0 + 0.5 * n + 0.01 * n * n for n in range(1, 30)])
    assert found == pytest.approx([3.0, 0.5, 0.01], rel=1e-6)
    assert relative_errors([1.1, 2.0], [1.0, 2.0]) == pytest.approx((0.05, 0.1))
    with pytest.raises(ValueError, match="do not determine"):
        fit_relative([(1.0, 2.0), (2.0, 4.0)], [1.0, 2.0])


TEMPLATE = Profile(
    name="x",
    model="m",
    gpu="g",
    provenance=Provenance(source="s", method="", licence="l"),
    dense_ms=((0, 1.0),),
    kv_ms_per_token=0.0,
    pair_ms=0.0,
    kv_blocks=300,
    max_batch_tokens=512,
)


def test_a_calibration_finds_the_pace_of_another_engine() -> None:
    made = [
        Recorded(key=str(n), tenant="", at_s=0.02 * n, prompt=20 + n % 50, output=10 + n % 20, first_s=0, last_s=0)
        for n in range(60)
    ]
    truth = Fit(weights_ms=20.0, token_ms=0.1, kv_ms=0.001, prefill_ms=1.0)
    turns = turns_of(made)
    run_alone(make_engine(truth.profile(TEMPLATE)), turns)
    recorded = [
        Recorded(
            key=turn.key,
            tenant="",
            at_s=turn.arrival_ns / 1e9,
            prompt=turn.prompt,
            output=turn.output,
            first_s=turn.first_ns / 1e9,
            last_s=turn.finished_ns / 1e9,
        )
        for turn in turns
    ]
    found = calibrate(recorded, TEMPLATE, source="test", evaluations=150)
    again = turns_of(recorded)
    run_alone(make_engine(found), again)
    assert sum(turn.latency_s for turn in again) == pytest.approx(sum(turn.latency_s for turn in turns), rel=0.03)


def test_a_profile_from_what_clients_saw() -> None:
    seen = [
        Observation(
            clients=b,
            prompt=n,
            output=32,
            first_s=(5 + 0.02 * n) / 1e3,
            total_s=(5 + 0.02 * n + 31 * (8 + 0.1 * b + 1e-4 * b * (n + 16))) / 1e3,
        )
        for b in (1, 2, 4, 8)
        for n in (64, 256, 1_024)
    ]
    profile = from_observations(seen, name="live", model="m", gpu="g")
    times = profile.times(LIMITS)
    assert times.decode_ns(4, 4 * 1_000) / 1e6 == pytest.approx(8 + 0.4 + 0.4, rel=0.02)
    assert times.prefill_ns(1_024) / 1e6 == pytest.approx(5 + 0.02 * 1_024, rel=0.05)
    with pytest.raises(ValueError, match="only 1"):
        from_observations(seen[:1], name="live", model="m", gpu="g")


def test_a_cold_start_by_phases() -> None:
    assert cold_start(7.0).total_s == pytest.approx(1.93 * 7 + 33.7, rel=0.05)
    assert cold_start(7.0, provision_s=240).total_s == pytest.approx(cold_start(7.0).total_s + 240)
