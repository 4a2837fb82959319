"""How many input tokens a request has, before an engine has counted them.

The text's bytes say it well enough once the model's ratio is known: it is learned from the engine's own counts. Parts
that are no text (images, audio) have declared costs.
"""

import msgspec

PRIOR_TOKENS_PER_BYTE = 0.25
"""English text in the byte-pair vocabularies of the field: about four bytes a token."""

_MEMORY = 0.99  # a hundred requests: a ratio that is learned from fewer jumps, and one from more follows too late
_PRIOR_WEIGHT = 2.0  # observations that the prior counts for
_LEAST_RATIO, _GREATEST_RATIO = 0.05, 1.5  # tokens per byte; more than 1 happens with byte fallback and templates


class MediaCost(msgspec.Struct, frozen=True, kw_only=True):
    """What parts that are no text cost, in tokens; operators declare it for a model.

    The defaults are the highest of common vision models: 1,105 tokens for a square image of high detail, 32 tokens a
    second of audio.
    """

    image: int = 1105
    audio_second: int = 32


class EstimateError(msgspec.Struct, frozen=True, kw_only=True):
    """How far estimates were off lately: means over about a hundred requests, as ratios of the true number."""

    absolute: float
    bias: float
    observations: int


class TokenEstimator:
    """The estimator of one model: tokens = fixed + ratio * bytes, fitted to minimise the relative error.

    `fixed` is what a chat template adds. The fit is a least-squares line weighted by 1 / tokens^2, whose sums decay.
    """

    __slots__ = ("_abs_error", "_bias", "_fixed", "_media", "_observations", "_ratio", "_sums")

    def __init__(self, media: MediaCost | None = None) -> None:
        self._media = media or MediaCost()
        self._fixed = 0.0
        self._ratio = PRIOR_TOKENS_PER_BYTE
        self._abs_error = 0.0
        self._bias = 0.0
        self._observations = 0
        # Weighted sums of 1, x, y, x*x and x*y, where x are bytes and y tokens; the prior is two imagined requests.
        self._sums = [0.0] * 5
        for size in (400.0, 4000.0):
            self._add(size, size * PRIOR_TOKENS_PER_BYTE, _PRIOR_WEIGHT / 2)

    def estimate(self, text_bytes: int, images: int = 0, audio_seconds: float = 0.0) -> int:
        """Input tokens of a request, at least 1."""
        tokens = int(self._fixed + self._ratio * text_bytes) + 1
        if images or audio_seconds:
            tokens += images * self._media.image + int(audio_seconds * self._media.audio_second)
        return tokens

    def observe(self, text_bytes: int, input_tokens: int, images: int = 0, audio_seconds: float = 0.0) -> None:
        """The engine has counted a request. Only text teaches the ratio; the error counts every request."""
        if input_tokens <= 0 or text_bytes <= 0:
            return
        error = self.estimate(text_bytes, images, audio_seconds) / input_tokens - 1.0
        self._observations += 1
        share = max(1.0 - _MEMORY, 1.0 / self._observations)
        self._abs_error += share * (abs(error) - self._abs_error)
        self._bias += share * (error - self._bias)
        if images or audio_seconds:
            return
        self._sums = [_MEMORY * each for each in self._sums]
        self._add(float(text_bytes), float(input_tokens), 1.0)
        self._fit()

    @property
    def error(self) -> EstimateError:
        """How good it is."""
        return EstimateError(absolute=self._abs_error, bias=self._bias, observations=self._observations)

    def _add(self, x: float, y: float, weight: float) -> None:
        weight /= y * y
        for at, value in enumerate((1.0, x, y, x * x, x * y)):
            self._sums[at] += weight * value

    def _fit(self) -> None:
        n, sx, sy, sxx, sxy = self._sums
        spread = n * sxx - sx * sx
        # Requests that all have one size tell nothing of the fixed part.
        ratio = (n * sxy - sx * sy) / spread if spread > 1e-9 * n * sxx else 0.0
        fixed = (sy - ratio * sx) / n
        if fixed < 0.0 or not _LEAST_RATIO <= ratio <= _GREATEST_RATIO:
            ratio, fixed = min(_GREATEST_RATIO, max(_LEAST_RATIO, sxy / sxx)), 0.0
        self._ratio, self._fixed = ratio, fixed
