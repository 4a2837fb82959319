"""A profile from kernel times of one decoder layer, in the three tables that LLMServingSim's profiler writes.

dense.csv (layer, tokens, time_us), per_sequence.csv (layer, sequences, time_us) and attention.csv (prefill_chunk,
kv_prefill, n_decode, kv_decode, time_us). Dense and sampling times are taken as measured; attention times are fitted by
the two quantities that attention costs: KV tokens read for decoding sequences, query-key pairs for prompts.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from pilothouse.simulator.least_squares import fit_relative_nonnegative, relative_errors
from pilothouse.simulator.profile import Profile, Provenance

_ONCE_A_STEP = frozenset({"embedding", "final_layernorm"})
_TWICE_A_LAYER = "layernorm"
_US = 1e-3
_SMALLEST_CHUNK = 64
"""Tokens. Smaller chunks are the ends of prompts, and their attention is lost in the rest of the step."""


def from_layer_tables(
    folder: Path, *, name: str, model: str, gpu: str, layers: int, source: str, licence: str
) -> Profile:
    """The profile of a model of `layers` layers.

    Raises:
        OSError, KeyError, ValueError: a table is not there, or not of that form.
    """
    dense = _curve(folder / "dense.csv", "tokens")
    whole = {
        tokens: _US
        * sum(
            times[tokens] * (1 if layer in _ONCE_A_STEP else layers * (2 if layer == _TWICE_A_LAYER else 1))
            for layer, times in dense.items()
        )
        for tokens in next(iter(dense.values()))
    }
    sampling = _curve(folder / "per_sequence.csv", "sequences")
    sampled = {count: _US * sum(times[count] for times in sampling.values()) for count in next(iter(sampling.values()))}
    attention = [
        (int(row["prefill_chunk"]), int(row["kv_prefill"]), int(row["n_decode"]), int(row["kv_decode"]),
         float(row["time_us"]) * layers * _US)
        for row in _rows(folder / "attention.csv")
    ]  # fmt: skip
    decode = [(float(n), float(n * kv), t) for chunk, _, n, kv, t in attention if not chunk]
    fixed, each, per_token = fit_relative_nonnegative([(1.0, n, kv) for n, kv, _ in decode], [t for *_, t in decode])
    # Steps with prefill: one kernel serves both, and reads a decoding sequence's context half as fast.
    mixed = [
        (1.0, chunk * (before + chunk / 2), n * kv, t)
        for chunk, before, n, kv, t in attention
        if chunk >= _SMALLEST_CHUNK and chunk + n <= max(whole)
    ]
    start, per_pair, per_token_mixed = fit_relative_nonnegative([row[:3] for row in mixed], [row[3] for row in mixed])
    times = [whole[tokens] for tokens in sorted(whole)]
    return Profile(
        name=name,
        model=model,
        gpu=gpu,
        provenance=Provenance(
            source=source,
            method="kernel times of one layer times the number of layers; attention fitted, the rest as measured",
            licence=licence,
            decode_error=_rounded(
                relative_errors(
                    [times[0] + fixed + each * n + per_token * kv for n, kv, _ in decode],
                    [times[0] + t for *_, t in decode],
                )
            ),
            prefill_error=_rounded(
                relative_errors(
                    [times[-1] + start + per_pair * pairs + per_token_mixed * kv for _, pairs, kv, _ in mixed],
                    [times[-1] + t for *_, t in mixed],
                )
            ),
        ),
        dense_ms=tuple((tokens, round(whole[tokens] + fixed, 5)) for tokens in sorted(whole)),
        sampled_ms=tuple((count, round(sampled[count], 5)) for count in sorted(sampled)),
        kv_ms_per_token=per_token,
        kv_mixed_ms_per_token=per_token_mixed,
        pair_ms=per_pair,
        decode_sequence_ms=each,
        max_batch_tokens=max(whole),
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _curve(path: Path, key: str) -> Mapping[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in _rows(path):
        found[row["layer"]][int(row[key])] = float(row["time_us"])
    return found


def _rounded(errors: tuple[float, float]) -> tuple[float, float]:
    return round(errors[0], 4), round(errors[1], 4)
