"""Synthetic workloads: arrivals, lengths, sessions, shared prefixes, tenants; the same from the same seed anywhere."""

from collections.abc import Iterator, Sequence

import msgspec

from pilothouse.model.units import SECOND
from pilothouse.simulator.chance import Chance
from pilothouse.simulator.turn import Turn

SYNTHETIC_UNIT_TOKENS = 64
"""Of a prefix unit."""


class TenantShare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tenant's part of the arrivals, by weight."""

    name: str
    share: float = 1.0
    tier: str = ""


class Synthetic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A synthetic workload. Lengths are lognormal with these medians, cut at `max_prompt` and `max_output`.

    `burstiness` is the coefficient of variation of the gaps between arrivals: 1 is Poisson, more comes in bursts
    (gamma distributed gaps). A session has `turns` turns; each repeats all that was said before, after `think_s` of
    thinking in the mean. `prefixes` system prompts of `prefix_tokens` are shared by sessions, Zipf distributed.
    """

    rate_per_s: float
    duration_s: float
    prompt: int = 512
    prompt_sigma: float = 0.8
    output: int = 128
    output_sigma: float = 0.8
    max_prompt: int = 32_768
    max_output: int = 4_096
    burstiness: float = 1.0
    turns: int = 1
    think_s: float = 10.0
    prefixes: int = 0
    prefix_tokens: int = 1_024
    unit_tokens: int = SYNTHETIC_UNIT_TOKENS
    tenants: tuple[TenantShare, ...] = ()


def generate(spec: Synthetic, seed: int) -> Iterator[Turn]:
    """The first turns of all sessions, in the order of arrival; later ones hang on `then`."""
    gaps, shape = Chance(seed, "gaps"), Chance(seed, "lengths")
    variance = spec.burstiness * spec.burstiness
    mean = 1.0 / spec.rate_per_s
    weights = _cumulative([1.0 / (rank + 1) for rank in range(spec.prefixes)])
    shares = _cumulative([tenant.share for tenant in spec.tenants])
    at = 0.0
    number = 0
    while True:
        at += gaps.exponential(mean) if variance == 1.0 else gaps.gamma(1.0 / variance, mean)
        if at >= spec.duration_s:
            return
        tenant = spec.tenants[_draw(shares, shape)].name if shares else ""
        prefix = _draw(weights, shape) if weights else None
        yield _session(spec, shape, number, round(at * SECOND), tenant, prefix)
        number += 1


def _session(spec: Synthetic, chance: Chance, number: int, at: int, tenant: str, prefix: int | None) -> Turn:
    shared = 0 if prefix is None else spec.prefix_tokens // spec.unit_tokens
    units = [((prefix or 0) << 20) + index for index in range(shared)]
    context = shared * spec.unit_tokens
    first = last = None
    for index in range(spec.turns):
        said = min(max(round(chance.lognormal(spec.prompt, spec.prompt_sigma)), 1), spec.max_prompt)
        output = min(max(round(chance.lognormal(spec.output, spec.output_sigma)), 1), spec.max_output)
        context += said
        if context > spec.max_prompt and index:
            break
        base = (number + 1) << 32
        units += [base + each for each in range(len(units), context // spec.unit_tokens)]
        turn = Turn(f"{number}-{index}", at, context, output, tenant=tenant, session=str(number), units=tuple(units))
        if last is None:
            first = turn
        else:
            last.then = (turn, round(chance.exponential(spec.think_s) * SECOND))
        last = turn
        context += output
    assert first is not None
    return first


def _cumulative(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    sums, so_far = [], 0.0
    for weight in weights:
        so_far += weight
        sums.append(so_far / total)
    return sums


def _draw(cumulative: Sequence[float], chance: Chance) -> int:
    at = chance.uniform()
    for index, bound in enumerate(cumulative):
        if at < bound:
            return index
    return len(cumulative) - 1
