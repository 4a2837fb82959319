"""TP against PP: 70B on eight H100 and on eight L40S over PCIe. `python -m benchmarks.simulation.parallelism`."""

import csv

import msgspec

from benchmarks.simulation.data import REFERENCE
from pilothouse.model.units import SECOND
from pilothouse.simulator.links import handover_ms, load_links
from pilothouse.simulator.pipeline import PipelineEngine
from pilothouse.simulator.profile import Profile, load
from pilothouse.simulator.step_times import EngineLimits
from pilothouse.simulator.turn import Turn

SEQUENCES, CONTEXT, PROMPT = 256, 2_048, 2_048
LAYOUTS = ((8, 1), (4, 2), (2, 4), (1, 8))
LIMITS = EngineLimits(kv_blocks=1_000_000, max_batch_tokens=8_192)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One layout; the reference table's columns."""

    layout: str
    decode_ms: float
    decode_tokens_per_s: float
    prefill_ms: float
    prefill_tokens_per_s: float
    single_ms: float


def laid_out(gpu: str, links: str, tensor: int) -> Profile:
    """70B in tensor parallelism."""
    profile = load(f"llama-3.1-70b-{gpu}")
    return profile if tensor == 1 else profile.sharded(tensor, load_links(links)[tensor])


def row(gpu: str, links: str, tensor: int, stages: int) -> Row:
    """By the step-time law: a micro-batch crosses all stages, as many micro-batches as stages are under way."""
    profile = laid_out(gpu, links, tensor)
    times = profile.times(LIMITS)
    batch = SEQUENCES // stages
    hops = stages - 1
    decode = times.decode_ns(batch, batch * CONTEXT) / 1e6 + hops * handover_ms(batch, profile.hidden)
    prefill = times.prefill_ns(PROMPT) / 1e6 + hops * handover_ms(PROMPT, profile.hidden)
    return Row(
        layout=f"TP{tensor}PP{stages}",
        decode_ms=decode,
        decode_tokens_per_s=SEQUENCES / decode * 1e3,
        prefill_ms=prefill,
        prefill_tokens_per_s=stages * PROMPT / prefill * 1e3,
        single_ms=times.decode_ns(1, CONTEXT) / 1e6 + hops * handover_ms(1, profile.hidden),
    )


def reference() -> list[Row]:
    """The table of the data."""
    with (REFERENCE / "tp_pp_70b_h100.csv").open() as file:
        return [
            Row(
                layout=each["layout"],
                decode_ms=float(each["decode_traversal_ms"]),
                decode_tokens_per_s=float(each["decode_tokens_per_s"]),
                prefill_ms=float(each["prefill_2048_latency_ms"]),
                prefill_tokens_per_s=float(each["pipelined_prefill_tokens_per_s"]),
                single_ms=float(each["decode_batch1_ms"]),
            )
            for each in csv.DictReader(file)
        ]


def engine_decode_tokens_per_s(gpu: str, links: str, tensor: int, stages: int) -> float:
    """What the engine with real micro-batches does with 256 sequences, in the middle of their answers."""
    engine = PipelineEngine(laid_out(gpu, links, tensor), LIMITS, stages=stages)
    output = 400
    turns = [Turn(str(n), 0, CONTEXT - output // 2, output) for n in range(SEQUENCES)]
    for turn in turns:
        engine.submit(turn, 0)
    while any(turn.produced == 0 for turn in turns):
        engine.advance()
    began, before = engine.next_ns, engine.output_tokens
    assert began is not None
    while not engine.advance():
        pass
    ended = engine.next_ns
    assert ended is not None
    return (engine.output_tokens - before) / (ended - began) * SECOND


def main() -> None:
    """Print both tables."""
    for gpu, links in (("h100", "h100-vllm-graph"), ("l40s", "l40s-nccl")):
        print(gpu)
        for tensor, stages in LAYOUTS:
            made = row(gpu, links, tensor, stages)
            line = f"  {made.layout}: decode {made.decode_ms:8.2f} ms {made.decode_tokens_per_s:8.0f}/s, prefill "
            line += f"{made.prefill_ms:8.1f} ms {made.prefill_tokens_per_s:8.0f}/s, one {made.single_ms:7.2f} ms"
            if stages > 1:
                line += f"; engine {engine_decode_tokens_per_s(gpu, links, tensor, stages):.0f}/s"
            print(line)
            if gpu == "h100":
                ref = next(each for each in reference() if each.layout == made.layout)
                print(
                    "     off", {k: f"{getattr(made, k) / getattr(ref, k) - 1:+.1%}" for k in Row.__struct_fields__[1:]}
                )


if __name__ == "__main__":
    main()
