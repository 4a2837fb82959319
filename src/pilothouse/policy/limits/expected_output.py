"""How many tokens a request will generate: a quantile of what the tenant's requests to the model generated.

A reservation of `max_tokens` would lock up what is never used, and clients that leave it out could not be limited.
"""

from collections import OrderedDict

QUANTILE = 0.9
"""Nine of ten requests generate at most what was reserved for them; what the tenth owes is settled at its end."""

PRIOR_TOKENS = 256
"""Before anything is known: the mean output of the public arena trace (1,500 requests of 27 clients)."""

MAX_LEARNED = 50_000
"""Pairs of tenant and model whose quantile is kept, the least recently used forgotten: about 10 MB."""

_FIRST_STEP = 1.0
_LEAST_STEP = 0.05  # so that it goes on following a tenant whose requests change


class ExpectedOutput:
    """Learns a quantile for each tenant and model, and one for each model for tenants that are new to it.

    The estimate q moves by a step towards each observation's side, by stochastic approximation (Robbins and Monro,
    1951) on a logarithmic scale: up by step * quantile if the request generated more than q, else down by
    step * (1 - quantile). The step falls as 1/n.
    """

    __slots__ = ("_learned", "_max_learned", "_quantile")

    def __init__(self, quantile: float = QUANTILE, max_learned: int = MAX_LEARNED) -> None:
        self._quantile = quantile
        self._max_learned = max_learned
        self._learned: OrderedDict[tuple[str, str], _Quantile] = OrderedDict()

    def expect(self, tenant: str, model: str, max_tokens: int | None, choices: int = 1) -> int:
        """Tokens to reserve for a request's output, at least 1.

        `max_tokens` is the largest of the limits in the request (for each choice), `None` if it has none.
        """
        learned = self._learned.get((tenant, model)) or self._learned.get(("", model))
        tokens = PRIOR_TOKENS if learned is None else int(learned.tokens) + 1
        if max_tokens is not None and max_tokens < tokens:
            tokens = max_tokens if max_tokens > 0 else 1
        return tokens * choices

    def observe(self, tenant: str, model: str, output_tokens: int, choices: int = 1) -> None:
        """A request ended by itself (not cut off by its client or a failure) after so many tokens."""
        for pair in ((tenant, model), ("", model)):
            learned = self._learned.get(pair)
            if learned is None:
                learned = self._learned[pair] = _Quantile()
                if len(self._learned) > self._max_learned:
                    self._learned.popitem(last=False)
            else:
                self._learned.move_to_end(pair)
            learned.observe(output_tokens / choices, self._quantile)


class _Quantile:
    __slots__ = ("_step", "tokens")

    def __init__(self) -> None:
        self.tokens = float(PRIOR_TOKENS)
        self._step = _FIRST_STEP

    def observe(self, tokens: float, quantile: float) -> None:
        if tokens > self.tokens:
            # A jump to a single outlier would be forgotten slowly: never further than the observation itself.
            self.tokens = min(tokens, self.tokens * (1.0 + self._step * quantile) + 1.0)
        else:
            self.tokens = max(tokens, self.tokens * (1.0 - self._step * (1.0 - quantile)))
        self._step = max(_LEAST_STEP, self._step / (1.0 + self._step))
