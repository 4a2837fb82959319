"""The fairness table: the A10G logs of VTC, from an engine calibrated on the first-come-first-served log alone.

`python -m benchmarks.simulation.fairness`. VTC runs the production counters (`pilothouse.policy.fairness`); least
counter first and requests a minute are baselines of the recorded system, and live only here.
"""

import functools
import importlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from benchmarks.simulation.data import VTC
from pilothouse.model.units import SECOND
from pilothouse.simulator.calibration import Recorded, calibrate, make_engine, read_vtc_log, run_alone, turns_of
from pilothouse.simulator.fair_order import Counters, FairOrder
from pilothouse.simulator.profile import Profile, Provenance
from pilothouse.simulator.separate_prefill import ArrivalOrder, Discipline
from pilothouse.simulator.turn import Turn

A10G = Profile(
    name="llama-2-7b-a10g",
    model="Llama-2-7b",
    gpu="A10G",
    provenance=Provenance(
        source="VTC artifact, FCFS_real.jsonl", method="", licence="derived from Apache-2.0 data (VTC artifact)"
    ),
    dense_ms=((0, 1.0),),
    kv_ms_per_token=0.0,
    pair_ms=0.0,
    separate_prefill=True,
    kv_blocks=10_000,
    block_tokens=1,
    max_batch_tokens=2_048,
    max_sequences=1_000,
    # Rank-8 adapters take 4*8 places of S-LoRA's unified pool each, placeholders or not.
    adapter_tokens=32,
)
PLACES = range(9_900, 10_101, 20)
WINDOW_S, STEP_S, WINDOWS = 60.0, 28.5, 19


class LeastCounter:
    """Counters as VTC's without the lift of clients that come back: the recorded system's LCF."""

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._waiting: dict[str, int] = {}

    def join(self, client: str, weight: float = 1.0) -> None:
        self._served.setdefault(client, 0.0)
        self._waiting[client] = self._waiting.get(client, 0) + 1

    def leave(self, client: str) -> None:
        self._waiting[client] -= 1

    def charge(self, client: str, input_tokens: float, output_tokens: float) -> None:
        self._served[client] += input_tokens + 2 * output_tokens

    def choose(self, allowed: Any) -> str | None:
        waiting = [client for client, count in self._waiting.items() if count and allowed(client)]
        return min(waiting, key=self._served.__getitem__, default=None)


class RequestsPerMinute(ArrivalOrder):
    """First come, first served below a limit of requests a minute and client, counted over the last minute."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._recent: dict[str, deque[int]] = {}

    def push(self, turn: Turn, now: int) -> bool:
        recent = self._recent.setdefault(turn.tenant, deque())
        while recent and recent[0] <= now - 60 * SECOND:
            recent.popleft()
        if len(recent) >= self._limit:
            return False
        recent.append(now)
        return super().push(turn, now)


def production_counters() -> Any | None:
    """`FairCounters`, if this version has them."""
    try:
        return importlib.import_module("pilothouse.policy.fairness.fairness_core").FairCounters()
    except ModuleNotFoundError:
        return None


def figures(recorded: Sequence[Recorded]) -> dict[str, float]:
    """Maximum and mean service difference, throughput and served, as the README of the data defines them."""
    served = [each for each in recorded if each.last_s >= 0]
    clients = sorted({each.tenant for each in served})
    differences = []
    for index in range(1, WINDOWS + 1):
        start, end = STEP_S * index, STEP_S * index + WINDOW_S
        service, demand = dict.fromkeys(clients, 0.0), dict.fromkeys(clients, 0.0)
        for each in served:
            cost = each.prompt + 2 * each.output
            if each.last_s >= 1.0:
                inside = min(each.last_s, end) - max(each.first_s, start)
                if inside > 0:
                    service[each.tenant] += cost * inside / (each.last_s - each.first_s) / WINDOW_S
            if start <= each.at_s < end:
                demand[each.tenant] += cost / WINDOW_S
        most = max(service.values())
        differences.append(sum(min(most - service[c], abs(demand[c] - service[c])) for c in clients))
    length = max(each.last_s for each in served)
    return {
        "max_diff": max(differences),
        "avg_diff": sum(differences) / len(differences),
        "tokens_per_s": sum(each.prompt + each.output for each in served) / length,
        "served": float(len(served)),
        "mean_ttft_s": sum(each.first_s - each.at_s for each in served) / len(served),
    }


def simulated(profile: Profile, discipline: Discipline, recorded: Sequence[Recorded]) -> list[Recorded]:
    """What the same requests do in the simulator, in the form of a recorded run."""
    turns = turns_of(recorded)
    run_alone(make_engine(profile, discipline), turns)
    return [
        Recorded(
            key=turn.key,
            tenant=turn.tenant,
            at_s=turn.arrival_ns / SECOND,
            prompt=turn.prompt,
            output=turn.output,
            first_s=turn.first_ns / SECOND if turn.served else -1.0,
            last_s=turn.finished_ns / SECOND if turn.served else -1.0,
        )
        for turn in turns
    ]


def run() -> dict[str, tuple[dict[str, float], dict[str, float]]]:
    """(measured, simulated) figures by policy; calibrated on FCFS alone.

    The largest of 19 differences hangs on which request ends a moment sooner: a cache of 1% more or fewer places moves
    it by a third under VTC. So the simulated figures are means over `PLACES`, for every policy alike; a recorded run
    is one draw.
    """
    fcfs = read_vtc_log(VTC / "FCFS_real.jsonl")
    profile = calibrate(fcfs, A10G, source="VTC artifact, FCFS_real.jsonl", evaluations=160)
    policies: dict[str, tuple[str, Callable[[], Discipline]]] = {
        "FCFS": ("FCFS_real", ArrivalOrder),
        "LCF": ("LCF_real", lambda: FairOrder(LeastCounter())),
        **{
            f"RPM {limit}": (f"LShare_rpm{limit}_real", functools.partial(RequestsPerMinute, limit))
            for limit in (5, 10, 15, 20, 30)
        },
    }
    if production_counters() is not None:
        policies["VTC"] = ("VTC_real", lambda: FairOrder(cast("Counters", production_counters())))
    found = {}
    for policy, (file, discipline) in policies.items():
        recorded = read_vtc_log(VTC / f"{file}.jsonl")
        runs = [
            figures(simulated(msgspec.structs.replace(profile, kv_blocks=places), discipline(), recorded))
            for places in PLACES
        ]
        made = {name: sum(run[name] for run in runs) / len(runs) for name in runs[0]}
        made["max_diff_least"] = min(run["max_diff"] for run in runs)
        made["max_diff_most"] = max(run["max_diff"] for run in runs)
        found[policy] = figures(recorded), made
    return found


def main() -> None:
    """Print the table."""
    print("policy   max diff (measured, simulated)   tokens/s (measured, simulated)   served   mean TTFT s")
    for policy, (measured, made) in run().items():
        print(
            f"{policy:7} {measured['max_diff']:8.1f} {made['max_diff']:8.1f}"
            f" {made['max_diff'] / measured['max_diff'] - 1:+7.1%}"
            f" ({made['max_diff_least']:.0f} to {made['max_diff_most']:.0f})"
            f"   {measured['tokens_per_s']:7.1f} {made['tokens_per_s']:7.1f}"
            f" {made['tokens_per_s'] / measured['tokens_per_s'] - 1:+7.1%}"
            f"   {measured['served']:.0f} {made['served']:.1f}"
            f"   {measured['mean_ttft_s']:.2f} {made['mean_ttft_s']:.2f}"
        )


if __name__ == "__main__":
    main()
