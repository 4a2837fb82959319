"""How long one step of an engine takes: the hot form of an engine profile."""

import itertools
from collections.abc import Sequence

import msgspec

from pilothouse.model.units import MILLISECOND


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds a batch, under vLLM's defaults where there are any."""

    kv_blocks: int
    """The engine's own count, as it logs it at its start (`num_gpu_blocks`): time to first token depends on it."""
    block_tokens: int = 16
    max_batch_tokens: int = 8192
    max_sequences: int = 256
    prefix_caching: bool = True


class ExpertTerm(msgspec.Struct, frozen=True, kw_only=True):
    """A mixture of experts: the time of reading weights grows with the distinct experts that a step's tokens touch."""

    experts: int
    top_k: int
    all_ms: float
    """Time of a step that touches every expert, beyond one that touches none."""


class StepTimes:
    """The step-time law of a profile, in float nanoseconds.

    A step of `tokens` tokens (decoding and prefill alike, since dense layers do not tell them apart) for `sequences`
    sequences takes `dense[tokens] + sampled[sequences] + kv*KV + pair*pairs`. KV is the context that decoding sequences
    read, and `pairs` the query-key pairs of prefill attention: `chunk*(context before it + chunk/2)`. `kv_mixed` holds
    for KV in steps with prefill, where attention kernels serve decoding sequences less well.
    """

    __slots__ = ("_dense", "_prefill", "_sampled", "decode", "kv", "kv_mixed", "pair")

    def __init__(
        self,
        *,
        dense_ms: Sequence[tuple[int, float]],
        sampled_ms: Sequence[tuple[int, float]],
        kv_ms: float,
        kv_mixed_ms: float,
        pair_ms: float,
        overhead_ms: float,
        prefill_ms: float,
        decode_sequence_ms: float,
        experts: ExpertTerm | None,
        limits: EngineLimits,
    ) -> None:
        """Curves are points of (tokens or sequences, milliseconds), ascending, linear between and beyond them."""
        most = max(limits.max_batch_tokens, limits.max_sequences)
        self._dense = [(each + overhead_ms) * MILLISECOND for each in curve(dense_ms, most)]
        if experts is not None:
            for tokens, ratio in enumerate(touched_ratios(experts.experts, experts.top_k, most)):
                self._dense[tokens] += experts.all_ms * ratio * MILLISECOND
        self._sampled = [each * MILLISECOND for each in curve(sampled_ms, limits.max_sequences + 1)]
        self._prefill = prefill_ms * MILLISECOND
        self.kv = kv_ms * MILLISECOND
        self.kv_mixed = kv_mixed_ms * MILLISECOND
        self.pair = pair_ms * MILLISECOND
        self.decode = [
            self._dense[count] + self._sampled[count] + decode_sequence_ms * count * MILLISECOND
            for count in range(min(limits.max_sequences, limits.max_batch_tokens) + 1)
        ]
        """Of a step of so many decoding sequences, without the reading of their context."""

    def mixed(self, tokens: int, sequences: int, kv_tokens: int, pairs: float) -> float:
        """Of a step with prefill."""
        return (
            self._prefill
            + self._dense[tokens]
            + self._sampled[sequences]
            + self.kv_mixed * kv_tokens
            + self.pair * pairs
        )

    def prefill_ns(self, tokens: int, context: int = 0) -> float:
        """Of one step that computes `tokens` of one prompt after `context`, and nothing else."""
        return self.mixed(tokens, 1, 0, tokens * (context + 0.5 * tokens))

    def decode_ns(self, sequences: int, kv_tokens: int) -> float:
        """Of one step of decoding sequences alone."""
        return self.decode[sequences] + self.kv * kv_tokens


def touched_ratios(experts: int, top_k: int, most: int) -> list[float]:
    """The expected share of distinct experts that n tokens touch, `1 - (1 - k/E)^n`, for n of 0 to `most`.

    Repeated multiplication and not `**`, so that it is the same on any machine.
    """
    ratios = [0.0]
    untouched = 1.0
    for _ in range(most):
        untouched *= 1.0 - top_k / experts
        ratios.append(1.0 - untouched)
    return ratios


def curve(points: Sequence[tuple[int, float]], most: int) -> list[float]:
    """The curve through `points` at 0 to `most`; the first point's value before it, the last slope beyond it."""
    if not points:
        return [0.0] * (most + 1)
    table = [points[0][1]] * (min(points[0][0], most) + 1)
    for (left, low), (right, high) in itertools.pairwise(points):
        slope = (high - low) / (right - left)
        table.extend(low + slope * (at - left) for at in range(left + 1, min(right, most) + 1))
    if len(points) > 1 and len(table) <= most:
        (left, low), (right, high) = points[-2:]
        slope = (high - low) / (right - left)
        table.extend(high + slope * (at - right) for at in range(right + 1, most + 1))
    table.extend([table[-1]] * (most + 1 - len(table)))
    return table
