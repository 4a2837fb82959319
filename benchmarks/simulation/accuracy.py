"""The accuracy run: vLLM 0.19 on an RTX 4090, from kernel tables alone. `python -m benchmarks.simulation.accuracy`."""

from benchmarks.simulation.data import RTX4090
from pilothouse.simulator.calibration import make_engine, read_engine_log, run_alone, turns_of
from pilothouse.simulator.metrics import percentile
from pilothouse.simulator.profile import load


def run() -> dict[str, tuple[float, float]]:
    """(measured, simulated) by figure, in seconds. Of the recorded engine only its KV block count is taken."""
    recorded = read_engine_log(RTX4090 / "bench" / "requests.jsonl")
    turns = turns_of(recorded)
    run_alone(make_engine(load("llama-3.1-8b-rtx4090")), turns)
    measured = {
        "ttft": sorted(each.first_s - each.at_s for each in recorded),
        "tpot": sorted((each.last_s - each.first_s) / (each.output - 1) for each in recorded),
        "latency": sorted(each.last_s - each.at_s for each in recorded),
    }
    made = {
        "ttft": sorted(turn.ttft_s for turn in turns),
        "tpot": sorted(turn.tpot_s for turn in turns),
        "latency": sorted(turn.latency_s for turn in turns),
    }
    found = {}
    for name, values in measured.items():
        found[f"{name} mean"] = sum(values) / len(values), sum(made[name]) / len(values)
        for ratio in (0.5, 0.9, 0.95, 0.99):
            found[f"{name} p{ratio * 100:g}"] = percentile(values, ratio), percentile(made[name], ratio)
    return found


def main() -> None:
    """Print the table."""
    for name, (measured, made) in run().items():
        print(f"{name:13} measured {measured:9.4f} s  simulated {made:9.4f} s  {made / measured - 1:+6.1%}")


if __name__ == "__main__":
    main()
