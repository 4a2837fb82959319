"""A profile from answers of a live replica, as a client sees them."""

from collections.abc import Sequence

import msgspec

from pilothouse.simulator.least_squares import fit_relative_nonnegative, relative_errors
from pilothouse.simulator.profile import Profile, Provenance


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One streamed answer, while so many clients asked at the same time."""

    clients: int
    prompt: int
    output: int
    first_s: float
    total_s: float


def from_observations(seen: Sequence[Observation], *, name: str, model: str, gpu: str) -> Profile:
    """Decode `c0 + c1*B + c2*KV` from the times between tokens; prefill `p0 + p1*n` from first tokens of one client.

    Raises:
        ValueError: there are too few answers, or they are all alike.
    """
    alone = [each for each in seen if each.clients == 1]
    if len(seen) < 8 or len(alone) < 2:
        raise ValueError(f"only {len(seen)} answers could be measured")
    decode = [
        (1.0, float(each.clients), each.clients * (each.prompt + each.output / 2)) for each in seen if each.output > 1
    ]
    pauses = [1e3 * (each.total_s - each.first_s) / (each.output - 1) for each in seen if each.output > 1]
    c0, c1, c2 = fit_relative_nonnegative(decode, pauses)
    prefill = [(1.0, float(each.prompt)) for each in alone]
    firsts = [1e3 * each.first_s for each in alone]
    p0, p1 = fit_relative_nonnegative(prefill, firsts)
    # What a first token costs beyond a decode step and its own arithmetic is the prefill's, and the way to the replica.
    beyond = max(p0 - c0, 0.0)
    knee = max(round((c0 + beyond - p0) / p1), 1) if p1 > 0 else 1
    most = max(8192, knee + 1)
    decode_errors = relative_errors([c0 + c1 * b + c2 * kv for _, b, kv in decode], pauses)
    return Profile(
        name=name,
        model=model,
        gpu=gpu,
        provenance=Provenance(
            source=f"{len(seen)} answers of a live replica",
            method="decode from times between tokens, prefill from first tokens, as a client saw them",
            licence="own measurement",
            decode_error=decode_errors,
            prefill_error=relative_errors([p0 + p1 * n for _, n in prefill], firsts),
        ),
        dense_ms=((0, c0), (knee, max(c0, p0 - beyond + p1 * knee)), (most, max(c0, p0 - beyond + p1 * most))),
        prefill_ms=beyond,
        kv_ms_per_token=c2,
        pair_ms=0.0,
        decode_sequence_ms=c1,
    )
