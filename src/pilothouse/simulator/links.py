"""What GPUs that work together pay for it: all-reduce for tensor parallelism, hand-over for pipeline stages."""

import importlib.resources

import msgspec

HANDOVER_US = 7.7
HANDOVER_GB_PER_S = 358.0
"""Between two GPUs of one H100 node, fitted to measured send/receive (MAPE 2.8%)."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """All-reduce among a number of GPUs: `alpha + 2(n-1)/n * bytes / bus`."""

    alpha_us: float
    bus_gb_per_s: float

    def all_reduce_ms(self, gpus: int, size_bytes: float) -> float:
        """One all-reduce of `size_bytes` on each GPU."""
        return self.alpha_us * 1e-3 + 2.0 * (gpus - 1) / gpus * size_bytes / self.bus_gb_per_s * 1e-6

    def step_ms(self, gpus: int, layers: int, hidden: int, tokens: int) -> float:
        """Of a step: two all-reduces a layer, of a 16-bit activation for each token."""
        return 2 * layers * self.all_reduce_ms(gpus, tokens * hidden * 2.0)


def load_links(name: str) -> dict[int, Link]:
    """The links of a kind, such as `h100-vllm-graph`, by the number of GPUs.

    Raises:
        LookupError: there is no such kind.
    """
    found = importlib.resources.files("pilothouse.simulator").joinpath("profiles", "links.json")
    links = msgspec.json.decode(found.read_bytes(), type=dict[str, dict[str, Link]])
    if name not in links:
        raise LookupError(f"there are no links {name}; there are {', '.join(sorted(links))}")
    return {int(gpus): link for gpus, link in links[name].items()}


def handover_ms(tokens: int, hidden: int) -> float:
    """One pipeline stage's activations to the next."""
    return HANDOVER_US * 1e-3 + tokens * hidden * 2.0 / HANDOVER_GB_PER_S * 1e-6
