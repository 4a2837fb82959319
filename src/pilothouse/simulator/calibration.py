"""A profile from a recorded run: coefficients searched until the simulated run ends where the recorded one did.

Only what is physically there is fitted: the time to read the weights, the time to compute a token (prefill), the time
to read a token's KV, and a fixed time a step. The scheduler is not fitted; it has to be the one that was recorded.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pilothouse.model.units import SECOND
from pilothouse.simulator.engine import Engine
from pilothouse.simulator.fleet import AnyEngine
from pilothouse.simulator.profile import Profile, Provenance
from pilothouse.simulator.search import nelder_mead
from pilothouse.simulator.separate_prefill import Discipline, SeparatePrefillEngine
from pilothouse.simulator.turn import Turn


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a recorded run; instants in seconds from its beginning."""

    key: str
    tenant: str
    at_s: float
    prompt: int
    output: int
    first_s: float
    last_s: float


def read_engine_log(path: Path) -> list[Recorded]:
    """JSON lines of request_id, input_toks, output_toks, queued_ts, first_token_ts, last_token_ts (s, one clock)."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    origin = min(row["queued_ts"] for row in rows)
    found = [
        Recorded(
            key=row["request_id"],
            tenant="",
            at_s=row["queued_ts"] - origin,
            prompt=row["input_toks"],
            output=row["output_toks"],
            first_s=row["first_token_ts"] - origin,
            last_s=row["last_token_ts"] - origin,
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: each.at_s)


def read_vtc_log(path: Path) -> list[Recorded]:
    """The result of one run of the VTC artifact: one JSON object; rejected requests have -1 for both instants."""
    responses = json.loads(path.read_text())["result"]["responses"]
    found = []
    for number, row in enumerate(responses):
        rejected = row["first_token_latency"] < 0
        found.append(
            Recorded(
                key=str(number),
                tenant=row["adapter_dir"].rpartition("-")[2],
                at_s=row["req_time"],
                prompt=row["prompt_len"],
                output=row["output_len"],
                first_s=-1.0 if rejected else row["req_time"] + row["first_token_latency"],
                last_s=-1.0 if rejected else row["req_time"] + row["request_latency"],
            )
        )
    return sorted(found, key=lambda each: each.at_s)


def turns_of(recorded: Sequence[Recorded]) -> list[Turn]:
    """The turns of a recorded run, to be run again."""
    return [
        Turn(each.key, round(each.at_s * SECOND), each.prompt, each.output, tenant=each.tenant) for each in recorded
    ]


def make_engine(profile: Profile, discipline: Discipline | None = None) -> AnyEngine:
    """One replica's engine of a profile."""
    limits = profile.limits()
    times = profile.times(limits)
    if profile.separate_prefill:
        return SeparatePrefillEngine(times, limits, discipline, adapter_tokens=profile.adapter_tokens)
    return Engine(times, limits)


def run_alone(engine: AnyEngine, turns: Sequence[Turn]) -> None:
    """Run one engine without a fleet around it."""
    place = 0
    while True:
        due = engine.next_ns
        if place < len(turns) and (due is None or turns[place].arrival_ns < due):
            engine.submit(turns[place], turns[place].arrival_ns)
            place += 1
        elif due is not None:
            engine.advance()
        else:
            return


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The coefficients of a calibration, in milliseconds."""

    weights_ms: float
    token_ms: float
    kv_ms: float
    prefill_ms: float

    def profile(self, template: Profile) -> Profile:
        """The template with these coefficients: a step is bound by its weights or by its arithmetic."""
        knee = max(round(self.weights_ms / self.token_ms), 1)
        most = max(template.max_batch_tokens, knee + 1)
        return msgspec.structs.replace(
            template,
            dense_ms=((0, self.weights_ms), (knee, self.weights_ms), (most, self.token_ms * most)),
            kv_ms_per_token=self.kv_ms,
            sampled_ms=(),
            pair_ms=0.0,
            overhead_ms=0.0,
            prefill_ms=self.prefill_ms,
        )


def calibrate(recorded: Sequence[Recorded], template: Profile, *, source: str, evaluations: int = 240) -> Profile:
    """The profile whose simulated run is nearest to the recorded one.

    `template` gives what is known of the engine: its KV blocks, its bounds, its scheduler. The cost is the mean
    distance of first and of last tokens over the length of the run, and the relative distance of mean times between
    tokens.
    """
    served = [each for each in recorded if each.last_s >= 0]
    length = max(each.last_s for each in served)

    def cost(values: Sequence[float]) -> float:
        if min(values) < 0:
            return 1e9
        weights, token, kv, prefill = values
        if token <= 0 or weights <= 0:
            return 1e9
        turns = turns_of(served)
        fitted = Fit(weights_ms=weights, token_ms=token, kv_ms=kv, prefill_ms=prefill).profile(template)
        run_alone(make_engine(fitted), turns)
        off = pace = 0.0
        for turn, each in zip(turns, served, strict=True):
            off += abs(turn.first_ns / SECOND - each.first_s) + abs(turn.finished_ns / SECOND - each.last_s)
            if each.output > 1:
                measured = (each.last_s - each.first_s) / (each.output - 1)
                pace += abs(turn.tpot_s - measured) / max(measured, 1e-9)
        return off / length / len(served) + pace / len(served)

    start = (30.0, 0.2, 5e-4, 2.0)
    found = nelder_mead(cost, start, step=0.25, evaluations=evaluations)
    fitted = Fit(weights_ms=found[0], token_ms=found[1], kv_ms=found[2], prefill_ms=found[3]).profile(template)
    return msgspec.structs.replace(
        fitted,
        provenance=Provenance(
            source=source,
            method=f"four coefficients searched against a recorded run of {len(served)} requests",
            residual=round(cost(found), 4),
            licence=template.provenance.licence,
        ),
    )
