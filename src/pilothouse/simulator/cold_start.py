"""How long a replica takes from nothing to ready, phase by phase."""

import msgspec


class ColdStart(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of each phase, in order."""

    provision_s: float
    bootstrap_s: float
    weights_s: float
    initialise_s: float
    other_s: float
    compile_s: float

    @property
    def total_s(self) -> float:
        """From the decision to ready."""
        return self.provision_s + self.bootstrap_s + self.weights_s + self.initialise_s + self.other_s + self.compile_s


def cold_start(
    parameters_billion: float,
    *,
    provision_s: float = 0.0,
    weights_gb_per_s: float = 1.84,
    cold_compile_s: float = 0.0,
) -> ColdStart:
    """The phases of a vLLM replica with 16-bit weights.

    Fitted to the means of "Breaking the Ice" (MLSys 2026; one A100, vLLM 0.10, 11 models of 0.46 to 14.2 B parameters,
    compile cache warm): bootstrap 10.2 s; weights 1.09*P + 0.18 s at their 1.84 GB/s; initialisation 0.85*P + 15.2 s;
    the total exceeds the sum by 7.5 to 8.7 s. Mean error of the total 4%. `provision_s` (a node) and `cold_compile_s`
    come on top and have no published fit.
    """
    return ColdStart(
        provision_s=provision_s,
        bootstrap_s=10.2,
        weights_s=0.18 + 2.0 * parameters_billion / weights_gb_per_s,
        initialise_s=0.85 * parameters_billion + 15.2,
        other_s=8.1,
        compile_s=cold_compile_s,
    )
