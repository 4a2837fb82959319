"""Recorded runs: vLLM on an RTX 4090 from kernel tables, and the A10G fairness logs from one of them."""

from benchmarks.bars.report import Bar, main
from benchmarks.simulation import accuracy, fairness

LATENCY, TTFT, TPOT = 0.03, 0.08, 0.03
THROUGHPUT, DIFFERENCE = 0.05, 0.10


def measure() -> list[Bar]:
    """Every recorded run that there is."""
    found = accuracy.run()
    bars = [
        _bar("RTX 4090: mean latency", found["latency mean"], LATENCY),
        _bar("RTX 4090: p99 time to first token", found["ttft p99"], TTFT),
        _bar("RTX 4090: inter-token p50", found["tpot p50"], TPOT),
    ]
    tables = fairness.run()
    for policy, (measured, made) in tables.items():
        if policy == "FCFS":
            continue  # it was calibrated on this one
        bars.append(
            _bar(f"A10G {policy}: tokens/s", (measured["tokens_per_s"], made["tokens_per_s"]), THROUGHPUT, "tokens/s")
        )
        bars.append(
            _bar(f"A10G {policy}: maximum difference", (measured["max_diff"], made["max_diff"]), DIFFERENCE, "")
        )
    if "VTC" not in tables:
        bars.append(
            Bar(name="A10G VTC", limit="within 10%", measured="no policy/fairness in this version", passed=False)
        )
    return bars


def _bar(name: str, values: tuple[float, float], limit: float, unit: str = "s") -> Bar:
    measured, made = values
    off = made / measured - 1
    return Bar(
        name=name,
        limit=f"within {limit:.0%}",
        measured=f"{off:+.1%} ({made:.4g} against {measured:.4g} {unit})".replace(" )", ")"),
        passed=abs(off) <= limit,
    )


if __name__ == "__main__":
    main("simulator", measure())
