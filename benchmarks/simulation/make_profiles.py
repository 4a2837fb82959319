"""Make the package's profiles from published tables: `python -m benchmarks.simulation.make_profiles`."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.simulation.data import REFERENCE, RTX4090
from pilothouse.simulator.layer_tables import from_layer_tables
from pilothouse.simulator.least_squares import fit_relative_nonnegative, relative_errors
from pilothouse.simulator.links import Link
from pilothouse.simulator.profile import Profile, Provenance, save
from pilothouse.simulator.step_times import ExpertTerm, touched_ratios

FOLDER = Path(__file__).resolve().parents[2] / "src" / "pilothouse" / "simulator" / "profiles"
SOURCE = "AIConfigurator 0.12 step times from vLLM 0.24 silicon tables, bf16 (reference/aic_step_times.csv)"
LICENCE = "derived from Apache-2.0 data, Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES"
GIB = 2**30
MEMORY = {"h100_sxm": 80 * GIB, "h200_sxm": 141 * GIB, "b300_sxm": 288_400_343_040, "l40s": 48_305_799_168,
          "l4": 24 * GIB, "b200_sxm": 180 * GIB}  # fmt: skip
SHORT = {"h100_sxm": "h100", "h200_sxm": "h200", "b300_sxm": "b300", "b200_sxm": "b200", "l40s": "l40s", "l4": "l4"}


DECODE_BATCHES = (0, 1, 8, 32, 64, 128, 256)


class Shape(msgspec.Struct, frozen=True):
    """What of a model decides its costs."""

    name: str
    short: str
    parameters_billion: float
    layers: int
    hidden: int
    kv_bytes_per_token: int
    experts: tuple[int, int] | None = None


LLAMA_8B = Shape("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b", 8.03, 32, 4096, 131_072)
LLAMA_70B = Shape("meta-llama/Meta-Llama-3.1-70B", "llama-3.1-70b", 70.55, 80, 8192, 327_680)
QWEN_MOE = Shape("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b", 30.53, 48, 2048, 98_304, (128, 8))


def rows(shape: Shape, system: str, tp: int = 1) -> tuple[list[tuple[int, int, float]], list[tuple[int, float]]]:
    """Decode points (batch, KV tokens, ms) and prefill points (tokens, ms)."""
    decode, prefill = [], []
    with (REFERENCE / "aic_step_times.csv").open() as file:
        for row in csv.DictReader(file):
            if (row["model"], row["system"], row["tp"], row["pp"]) != (shape.name, system, str(tp), "1"):
                continue
            batch, length, took = int(row["batch"]), int(row["isl_or_ctx"]), float(row["latency_ms"])
            if row["phase"] == "decode":
                decode.append((batch, batch * length, took))
            else:
                prefill.append((length, took))
    return decode, sorted(prefill)


def profile(shape: Shape, system: str) -> Profile:
    """One model on one GPU."""
    decode, prefill = rows(shape, system)
    experts = None
    if shape.experts:
        touched = touched_ratios(*shape.experts, 32_768)
        found = fit_relative_nonnegative(
            [(1.0, touched[batch], batch, kv) for batch, kv, _ in decode], [t for *_, t in decode]
        )
        c0, everything, c1, c2 = found
        experts = ExpertTerm(experts=shape.experts[0], top_k=shape.experts[1], all_ms=round(everything, 5))
    else:
        touched = [0.0] * 32_769
        c0, c1, c2 = fit_relative_nonnegative([(1.0, batch, kv) for batch, kv, _ in decode], [t for *_, t in decode])
        everything = 0.0
    _, _, p2 = fit_relative_nonnegative([(1.0, n, n * n) for n, _ in prefill], [t for _, t in prefill])
    dense = [(n, c0 + c1 * n) for n in DECODE_BATCHES]
    dense += [(n, t - p2 * n * n - everything * touched[n]) for n, t in prefill if n > DECODE_BATCHES[-1]]
    made = Profile(
        name=f"{shape.short}-{SHORT[system]}",
        model=shape.name,
        gpu=SHORT[system].upper(),
        provenance=Provenance(source=SOURCE, method="", licence=LICENCE),
        dense_ms=rounded(dense),
        kv_ms_per_token=c2,
        pair_ms=2 * p2,
        experts=experts,
        layers=shape.layers,
        hidden=shape.hidden,
        parameters_billion=shape.parameters_billion,
        kv_bytes_per_token=shape.kv_bytes_per_token,
        gpu_memory_bytes=MEMORY[system],
    )
    return with_errors(made, decode, prefill, "decode fitted; prefill interpolated beside the quadratic of attention")


def with_errors(
    made: Profile, decode: Sequence[tuple[int, int, float]], prefill: Sequence[tuple[int, float]], method: str
) -> Profile:
    """With its errors against the points."""
    times = made.times(msgspec.structs.replace(made.limits(1), max_batch_tokens=32_768))
    return msgspec.structs.replace(
        made,
        provenance=msgspec.structs.replace(
            made.provenance,
            method=method,
            decode_error=errors([times.decode_ns(b, kv) / 1e6 for b, kv, _ in decode], [t for *_, t in decode]),
            prefill_error=errors([times.prefill_ns(n) / 1e6 for n, _ in prefill], [t for _, t in prefill]),
        ),
    )


def errors(predicted: Sequence[float], measured: Sequence[float]) -> tuple[float, float]:
    mean, largest = relative_errors(predicted, measured)
    return round(mean, 4), round(largest, 4)


def rounded(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    return tuple((n, round(t, 5)) for n, t in points)


def links() -> dict[str, dict[str, Link]]:
    """All-reduce coefficients by link and degree."""
    found: dict[str, dict[str, Link]] = {}
    with (REFERENCE / "allreduce_alpha_beta.csv").open() as file:
        for row in csv.DictReader(file):
            name = f"{SHORT[row['system']]}-{row['source'].replace('_', '-')}"
            found.setdefault(name, {})[row["n_gpus"]] = Link(
                alpha_us=float(row["alpha_us"]), bus_gb_per_s=float(row["busbw_GBps"])
            )
    return found


def split_serial(made: Profile, shape: Shape, link: dict[str, Link]) -> Profile:
    """With the part of a step that more GPUs do not divide, fitted over TP 1, 2, 4 and 8 (weights of minimax)."""
    decode_points, targets, reduced, prefill_points = [], [], [], []
    for tp in (1, 2, 4, 8):
        decode, prefill = rows(shape, "h100_sxm", tp)
        for batch, kv, took in decode:
            reduce = link[str(tp)].step_ms(tp, shape.layers, shape.hidden, batch) if tp > 1 else 0.0
            decode_points.append((1 / tp, batch / tp, kv / tp, 1.0, float(batch)))
            targets.append(took)
            reduced.append(reduce)
        for n, took in prefill:
            reduce = link[str(tp)].step_ms(tp, shape.layers, shape.hidden, n) if tp > 1 else 0.0
            prefill_points.append((tp, n, took - reduce))
    weights = [1.0] * len(targets)
    for _ in range(40):
        # Row and target by the weight: the row's relative error counts that much more.
        found = weighted(decode_points, [t - r for t, r in zip(targets, reduced, strict=True)], weights)
        off = [
            abs(sum(c * x for c, x in zip(found, row, strict=True)) + r - t) / t
            for row, r, t in zip(decode_points, reduced, targets, strict=True)
        ]
        weights = [w * (0.5 + e / max(off)) for w, e in zip(weights, off, strict=True)]
        weights = [w / max(weights) for w in weights]
    w0, w1, w2, s0, s1 = found
    serial = [(0, s0), (256, s0 + 256 * s1)]
    for n in sorted({n for _, n, _ in prefill_points if n > 256}):
        whole = next(t for tp, m, t in prefill_points if (tp, m) == (1, n))
        # t = (whole - s)/tp + s at every degree: each gives an s, and their mean is taken.
        each = [(t - whole / tp) / (1 - 1 / tp) for tp, m, t in prefill_points if m == n and tp > 1]
        serial.append((n, max(sum(each) / len(each), s0)))
    dense = [(n, w0 + s0 + (w1 + s1) * n) for n in DECODE_BATCHES]
    dense += [point for point in made.dense_ms if point[0] > 256]
    return msgspec.structs.replace(made, dense_ms=rounded(dense), serial_ms=rounded(serial), kv_ms_per_token=w2)


def weighted(points: Sequence[Sequence[float]], targets: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Relative least squares with weights: rows are repeated by scaling both sides' relative errors."""
    from pilothouse.simulator.least_squares import fit_weighted

    return fit_weighted(points, targets, [w / (t * t) for w, t in zip(weights, targets, strict=True)])


def scaled(made: Profile, by: Profile, to: Profile, name: str, method: str) -> Profile:
    """`made` on another GPU, by what another model costs on both: an estimate."""
    decode = to.dense_ms[0][1] / by.dense_ms[0][1]
    prefill = to.dense_ms[-1][1] / by.dense_ms[-1][1]
    last = DECODE_BATCHES[-1]
    return msgspec.structs.replace(
        made,
        name=name,
        gpu=to.gpu,
        gpu_memory_bytes=to.gpu_memory_bytes,
        dense_ms=rounded([(n, t * (decode if n <= last else prefill)) for n, t in made.dense_ms]),
        serial_ms=rounded([(n, t * (decode if n <= last else prefill)) for n, t in made.serial_ms]),
        kv_ms_per_token=made.kv_ms_per_token * to.kv_ms_per_token / by.kv_ms_per_token,
        pair_ms=made.pair_ms * to.pair_ms / by.pair_ms,
        provenance=Provenance(source=made.provenance.source, method=method, licence=LICENCE, estimate=True),
    )


def l4(l40s: Profile) -> Profile:
    """By the ratio of the speeds of light: 2.88 for decode, 2.98 for prefill."""
    last = DECODE_BATCHES[-1]
    return msgspec.structs.replace(
        l40s,
        name=l40s.name.replace("l40s", "l4"),
        gpu="L4",
        gpu_memory_bytes=MEMORY["l4"],
        dense_ms=rounded([(n, t * (2.88 if n <= last else 2.98)) for n, t in l40s.dense_ms]),
        kv_ms_per_token=l40s.kv_ms_per_token * 2.88,
        pair_ms=l40s.pair_ms * 2.98,
        provenance=Provenance(
            source=SOURCE,
            method="no table exists: L40S times the ratio of the speeds of light, 2.88 decode and 2.98 prefill",
            licence=LICENCE,
            estimate=True,
        ),
    )


B200_OVER_B300 = {0: 1.0, 64: 0.99, 256: 1.021, 512: 1.074, 1_024: 1.11, 2_048: 1.133, 4_096: 1.084, 8_192: 1.074,
                  16_384: 1.011}  # fmt: skip
"""Ratio of the summed times of 64 bf16 GEMMs (n and k of 4,096 to 32,768) in the gemm_perf tables, by tokens."""
B200_DECODE_ATTENTION, B200_PREFILL_ATTENTION = 0.99, 1.19
"""Of generation_attention_perf above 200,000 KV tokens, and of context_attention_perf from 1,024 to 4,096 tokens (bf16,
32 heads, 8 KV heads of 128)."""


def b200(b300: Profile) -> Profile:
    """By what the GEMMs and the attention of both GPUs take in the tables; there are no whole steps of a B200."""
    ratios = sorted(B200_OVER_B300.items())
    return msgspec.structs.replace(
        b300,
        name=b300.name.replace("b300", "b200"),
        gpu="B200",
        gpu_memory_bytes=MEMORY["b200_sxm"],
        dense_ms=rounded([(n, t * next(r for at, r in reversed(ratios) if n >= at)) for n, t in b300.dense_ms]),
        kv_ms_per_token=b300.kv_ms_per_token * B200_DECODE_ATTENTION,
        pair_ms=b300.pair_ms * B200_PREFILL_ATTENTION,
        provenance=msgspec.structs.replace(
            b300.provenance,
            source="AIConfigurator vLLM 0.24 silicon tables of B200 and B300 (GEMM, attention)",
            method="the B300 profile by the measured ratios of its parts; the errors are those of the B300 profile",
        ),
    )


def main() -> None:
    """Write them all."""
    FOLDER.mkdir(exist_ok=True)
    all_links = links()
    FOLDER.joinpath("links.json").write_bytes(msgspec.json.format(msgspec.json.encode(all_links), indent=1) + b"\n")
    made: dict[str, Profile] = {}
    for shape in (LLAMA_8B, QWEN_MOE):
        for system in ("h100_sxm", "h200_sxm", "b300_sxm", "l40s"):
            each = profile(shape, system)
            made[each.name] = each
    h100 = made["llama-3.1-8b-h100"]
    large = split_serial(profile(LLAMA_70B, "h100_sxm"), LLAMA_70B, all_links["h100-vllm-graph"])
    large = with_errors(
        large, *rows(LLAMA_70B, "h100_sxm"), "TP 1, 2, 4, 8 fitted together: sharded part, serial part, all-reduce"
    )
    made[large.name] = large
    for gpu in ("h200", "b300", "l40s"):
        made[f"llama-3.1-70b-{gpu}"] = scaled(
            large,
            h100,
            made[f"llama-3.1-8b-{gpu}"],
            f"llama-3.1-70b-{gpu}",
            f"H100 times what the 8B model takes on {gpu.upper()} over what it takes on H100",
        )
    for size in ("8b", "70b"):
        made[f"llama-3.1-{size}-b200"] = b200(made[f"llama-3.1-{size}-b300"])
    made["llama-3.1-8b-l4"] = l4(made["llama-3.1-8b-l40s"])
    meta = json.loads((RTX4090 / "bench" / "meta.json").read_text())
    made["llama-3.1-8b-rtx4090"] = msgspec.structs.replace(
        from_layer_tables(
            RTX4090 / "profile",
            name="llama-3.1-8b-rtx4090",
            model=LLAMA_8B.name,
            gpu="RTX 4090",
            layers=LLAMA_8B.layers,
            source="LLMServingSim 2.0 profiler tables, vLLM 0.19",
            licence="derived from MIT data, Copyright (c) 2024, CASYS Lab at KAIST",
        ),
        kv_blocks=meta["kv_cache"]["num_gpu_blocks"],
        max_batch_tokens=2048,
        parameters_billion=LLAMA_8B.parameters_billion,
        layers=LLAMA_8B.layers,
        hidden=LLAMA_8B.hidden,
        kv_bytes_per_token=LLAMA_8B.kv_bytes_per_token,
    )
    for name, each in made.items():
        save(each, FOLDER / f"{name}.json")
        print(name, each.provenance.decode_error, each.provenance.prefill_error, each.default_kv_blocks())


if __name__ == "__main__":
    main()
