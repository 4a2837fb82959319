"""Engines that hang without closing: they take requests, keep connections open, pass probes, and never answer."""

from pilothouse.model.units import SECOND, DurationNs

SILENCES = 3
"""Time-outs in a row, with no answer between them, after which a replica counts as hung: Kubernetes' failureThreshold.
One may be a hard prompt, two a coincidence."""

EJECTION_BASE = DurationNs(30 * SECOND)
"""As Envoy's base_ejection_time."""

EJECTION_CAP = DurationNs(300 * SECOND)
"""As Envoy's max_ejection_time."""


def ejection(silences: int) -> DurationNs:
    """How long to send nothing to a replica after so many time-outs in a row; 0 while it is not taken to be hung."""
    if silences < SILENCES:
        return DurationNs(0)
    return DurationNs(min(EJECTION_CAP, EJECTION_BASE * (silences - SILENCES + 1)))
