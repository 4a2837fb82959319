"""How many tokens a request will generate: a quantile of what the tenant's requests to the model generated.

A reservation of `max_tokens` would lock up what is never used, and clients that leave it out could not be limited.
"""

import math

QUANTILE = 0.9
"""Nine of ten requests generate at most what was reserved for them; what the tenth owes is settled at its end."""

PRIOR_TOKENS = 256
"""Before anything is known: the mean output of the public arena trace (1,500 requests of 27 clients)."""

MAX_LEARNED = 50_000
"""Pairs of tenant and model whose quantile is kept, the oldest forgotten first: about 10 MB."""

_MODEL_EVERY = 8  # observations of a tenant of which the model learns one: it has many tenants

_GAIN = 6.0  # of the falling step; 1 / density of exponential lengths at the quantile, on the logarithmic scale
_LEAST_STEP = 0.05  # so that it goes on following a tenant whose requests change


class ExpectedOutput:
    """Learns a quantile for each tenant and model, and one for each model for tenants that are new to it.

    The estimate q moves by a step towards each observation's side, by stochastic approximation (Robbins and Monro,
    1951) on a logarithmic scale: up by step * quantile if the request generated more than q, else down by
    step * (1 - quantile). The step falls with the number of observations, to a floor.
    """

    __slots__ = ("_learned", "_max_learned", "_quantile")

    def __init__(self, quantile: float = QUANTILE, max_learned: int = MAX_LEARNED) -> None:
        self._quantile = quantile
        self._max_learned = max_learned
        self._learned: dict[tuple[str, str], _Quantile] = {}

    def expect(self, tenant: str, model: str, max_tokens: int | None, choices: int = 1) -> int:
        """Tokens to reserve for a request's output, at least 1.

        `max_tokens` is the largest of the limits in the request (for each choice), `None` if it has none.
        """
        learned = self._learned.get((tenant, model)) or self._learned.get(("", model))
        tokens = PRIOR_TOKENS if learned is None else math.ceil(learned.tokens)
        if max_tokens is not None and max_tokens < tokens:
            tokens = max_tokens if max_tokens > 0 else 1
        return tokens * choices

    def observe(self, tenant: str, model: str, output_tokens: int, choices: int = 1, *, cut_off: bool = False) -> None:
        """A request ended after so many tokens; `cut_off`: it would have gone on, but for its max tokens or its client.

        Of a request that was cut off only the least that it would have generated is known. Otherwise a client could
        teach a low quantile with requests for one token.
        """
        tokens, pair = output_tokens / choices, (tenant, model)
        learned = self._learned.get(pair) or self._begin(pair)
        if learned.observations % _MODEL_EVERY == 0:
            of_model = self._learned.get(("", model)) or self._begin(("", model))
            of_model.observe(tokens, self._quantile, cut_off=cut_off)
        learned.observe(tokens, self._quantile, cut_off=cut_off)

    def _begin(self, pair: tuple[str, str]) -> "_Quantile":
        if len(self._learned) >= self._max_learned:
            del self._learned[next(iter(self._learned))]
        learned = self._learned[pair] = _Quantile()
        return learned


class _Quantile:
    __slots__ = ("observations", "tokens")

    def __init__(self) -> None:
        self.tokens = float(PRIOR_TOKENS)
        self.observations = 0

    def observe(self, tokens: float, quantile: float, *, cut_off: bool) -> None:
        if cut_off and tokens <= self.tokens:
            return
        self.observations += 1
        step = max(_LEAST_STEP, min(1.0, _GAIN / self.observations))
        if tokens > self.tokens:
            # Never further than the observation itself: one outlier would be forgotten slowly.
            self.tokens = min(tokens, self.tokens * (1.0 + step * quantile))
        else:
            self.tokens = max(tokens, 1.0, self.tokens * (1.0 - step * (1.0 - quantile)))
