"""How long the pauses between output tokens were: a histogram with a relative resolution of 1/128."""

_BITS = 7
_PIECES = 64
"""A jump over steps of unequal length is counted in at most so many pieces."""


class TokenGaps:
    """Pauses between two tokens of one answer, in nanoseconds, counted by buckets whose width is under 0.8%."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def note(self, first: float, slope: float, steps: int, sequences: int) -> None:
        """`steps` steps, the i-th of which took `first + slope*i`, each a pause for `sequences` answers."""
        counts = self._counts
        spread = slope * (steps - 1)
        pieces = min(steps, _PIECES, int(spread * 128.0 / first) + 1)
        if pieces == 1:
            gap = int(first + 0.5 * spread)
            shift = max(gap.bit_length() - _BITS - 1, 0)
            bucket = gap >> shift << shift
            counts[bucket] = counts.get(bucket, 0) + steps * sequences
            return
        begin = 0
        for piece in range(1, pieces + 1):
            end = steps * piece // pieces
            gap = int(first + slope * 0.5 * (begin + end - 1))
            shift = max(gap.bit_length() - _BITS - 1, 0)
            bucket = gap >> shift << shift
            counts[bucket] = counts.get(bucket, 0) + (end - begin) * sequences
            begin = end

    def merge(self, other: "TokenGaps") -> None:
        """Count the other's as well."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    @property
    def count(self) -> int:
        """How many pauses."""
        return sum(self._counts.values())

    def mean_ns(self) -> float:
        """The mean pause in nanoseconds, to the histogram's resolution; 0 without any."""
        total = sum(count * _middle(bucket) for bucket, count in sorted(self._counts.items()))
        return total / self.count if self._counts else 0.0

    def percentile_ns(self, ratio: float) -> float:
        """The pause that `ratio` of all do not exceed, in nanoseconds (the middle of its bucket); 0 without any."""
        rank = ratio * self.count
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= rank:
                return _middle(bucket)
        return 0.0


def _middle(bucket: int) -> float:
    return bucket + (1 << max(bucket.bit_length() - _BITS - 1, 0)) / 2
