"""TP against PP, and the activated-expert law."""

import csv

from benchmarks.bars.report import Bar, main
from benchmarks.simulation import parallelism
from benchmarks.simulation.data import REFERENCE
from pilothouse.simulator.chance import Chance
from pilothouse.simulator.profile import load
from pilothouse.simulator.step_times import EngineLimits, ExpertTerm, StepTimes, touched_ratios

LIMIT = 0.05
EXPERTS, TOP_K = 128, 8
BATCHES = (8, 16, 32, 64)
TRIALS = 400
FIXED_US, EXPERT_US = 32.0, 6.13
"""Measured layer times of the 30B-A3B model on an RTX PRO 6000, by distinct experts."""


def measure() -> list[Bar]:
    """The four layouts, the sign on PCIe, and MoE."""
    worst, where = 0.0, ""
    for reference in parallelism.reference():
        tensor, stages = map(int, reference.layout.removeprefix("TP").split("PP"))
        made = parallelism.row("h100", "h100-vllm-graph", tensor, stages)
        for column in parallelism.Row.__struct_fields__[1:]:
            off = getattr(made, column) / getattr(reference, column) - 1
            if abs(off) > abs(worst):
                worst, where = off, f"{reference.layout} {column}"
    engine_off = max(
        abs(
            parallelism.engine_decode_tokens_per_s("h100", "h100-vllm-graph", tensor, stages)
            / parallelism.row("h100", "h100-vllm-graph", tensor, stages).decode_tokens_per_s
            - 1
        )
        for tensor, stages in parallelism.LAYOUTS
        if stages > 1
    )
    speeds = {
        gpu: [parallelism.row(gpu, links, *layout).decode_tokens_per_s for layout in ((8, 1), (1, 8))]
        for gpu, links in (("h100", "h100-vllm-graph"), ("l40s", "l40s-nccl"))
    }
    return [
        Bar(
            name="70B on 8 H100: four layouts against the reference",
            limit="within 5%",
            measured=f"largest {worst:+.1%} ({where})",
            passed=abs(worst) <= LIMIT,
        ),
        Bar(
            name="engine with real micro-batches against its own law",
            limit="within 5%",
            measured=f"{engine_off:.1%}",
            passed=engine_off <= LIMIT,
        ),
        Bar(
            name="sign of TP8 against PP8 (decode)",
            limit="TP on H100, PP on L40S over PCIe",
            measured=", ".join(f"{gpu}: TP {tp:.0f}/s, PP {pp:.0f}/s" for gpu, (tp, pp) in speeds.items()),
            passed=speeds["h100"][0] > speeds["h100"][1] and speeds["l40s"][0] < speeds["l40s"][1],
        ),
        *_experts(),
    ]


def _experts() -> list[Bar]:
    """The expected number of experts against drawn ones, a layer of the reference law, and steps against the tables."""
    chance = Chance(0, "experts")
    drawn = {batch: sum(_drawn(chance, batch) for _ in range(TRIALS)) / TRIALS for batch in BATCHES}
    touched = touched_ratios(EXPERTS, TOP_K, max(BATCHES))
    distinct = max(abs(EXPERTS * touched[batch] / drawn[batch] - 1) for batch in BATCHES)
    layer = StepTimes(
        dense_ms=((0, FIXED_US / 1e3),),
        sampled_ms=(),
        kv_ms=0.0,
        kv_mixed_ms=0.0,
        pair_ms=0.0,
        overhead_ms=0.0,
        prefill_ms=0.0,
        decode_sequence_ms=0.0,
        experts=ExpertTerm(experts=EXPERTS, top_k=TOP_K, all_ms=EXPERT_US * EXPERTS / 1e3),
        limits=EngineLimits(kv_blocks=1),
    )
    off = max(abs(layer.decode_ns(batch, 0) / 1e3 / (FIXED_US + EXPERT_US * drawn[batch]) - 1) for batch in BATCHES)
    bars = [
        _within("MoE: distinct experts against drawn ones, batch 8 to 64", distinct),
        _within("MoE: layer time, 32 us + 6.13 us an expert, batch 8 to 64", off),
    ]
    with (REFERENCE / "aic_step_times.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if "A3B" in row["model"] and row["phase"] == "decode"]
    for system in sorted({row["system"] for row in rows}):
        profile = load(f"qwen3-30b-a3b-{system.split('_')[0]}")
        times = profile.times(profile.limits(1))
        errors = []
        for row in rows:
            batch, context = int(row["batch"]), int(row["isl_or_ctx"])
            if row["system"] == system and batch in BATCHES:
                errors.append(abs(times.decode_ns(batch, batch * context) / 1e6 / float(row["latency_ms"]) - 1))
        bars.append(
            _within(f"MoE: steps of {system} against its table, mean, batch 8 to 64", sum(errors) / len(errors))
        )
    return bars


def _within(name: str, off: float) -> Bar:
    return Bar(name=name, limit="within 5%", measured=f"{off:.1%}", passed=off <= LIMIT)


def _drawn(chance: Chance, batch: int) -> int:
    """Distinct experts of a batch whose tokens each draw `TOP_K` of them."""
    seen: set[int] = set()
    for _ in range(batch):
        own: set[int] = set()
        while len(own) < TOP_K:
            own.add(chance.below(EXPERTS))
        seen |= own
    return len(seen)


if __name__ == "__main__":
    main("simulator", measure())
