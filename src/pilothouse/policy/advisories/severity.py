"""How bad an advisory is, from what its records say: a level in words, a number, or a CVSS vector.

CVSS 3.1's base score: https://www.first.org/cvss/v3.1/specification-document, section 7.1. Vectors of other versions
give no number; their records nearly always carry a level in words as well.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pilothouse.model.posture import Severity
from pilothouse.policy.advisories.records import OsvRecord

_WORDS = {
    "LOW": Severity.LOW,
    "MODERATE": Severity.MEDIUM,
    "MEDIUM": Severity.MEDIUM,
    "HIGH": Severity.HIGH,
    "IMPORTANT": Severity.HIGH,
    "CRITICAL": Severity.CRITICAL,
    "MALICIOUS": Severity.MALICIOUS,
}
_WEIGHTS: Mapping[str, Mapping[str, float]] = {
    "AV": {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2},
    "AC": {"L": 0.77, "H": 0.44},
    "UI": {"N": 0.85, "R": 0.62},
    "C": {"H": 0.56, "L": 0.22, "N": 0.0},
    "I": {"H": 0.56, "L": 0.22, "N": 0.0},
    "A": {"H": 0.56, "L": 0.22, "N": 0.0},
}
_PRIVILEGES = {"U": {"N": 0.85, "L": 0.62, "H": 0.27}, "C": {"N": 0.85, "L": 0.68, "H": 0.5}}


def severity_of(record: OsvRecord) -> Severity:
    """The highest level that any part of the record gives."""
    said = [_spoken(record.database_specific)]
    for affected in record.affected:
        said.append(_spoken(affected.database_specific))
        said += [level_of(score) for each in affected.severity if (score := base_score(each.score)) is not None]
    said += [level_of(score) for each in record.severity if (score := base_score(each.score)) is not None]
    return worst(said)


def worst(levels: Iterable[Severity]) -> Severity:
    """The highest of some levels."""
    return max(levels, key=lambda level: level.rank)


def level_of(score: float) -> Severity:
    """The level of a score from 0 to 10, by CVSS's table of qualitative ratings."""
    for bound, level in ((9.0, Severity.CRITICAL), (7.0, Severity.HIGH), (4.0, Severity.MEDIUM), (0.1, Severity.LOW)):
        if score >= bound:
            return level
    return Severity.UNKNOWN


def base_score(vector: str) -> float | None:
    """The base score of a CVSS 3.0 or 3.1 vector; `None` for anything else."""
    head, *pairs = vector.strip().split("/")
    if head not in {"CVSS:3.0", "CVSS:3.1"}:
        return None
    metrics = dict(pair.partition(":")[::2] for pair in pairs)
    try:
        changed = {"U": False, "C": True}[metrics["S"]]
        weight = {name: values[metrics[name]] for name, values in _WEIGHTS.items()}
        privileges = _PRIVILEGES[metrics["S"]][metrics["PR"]]
    except KeyError:
        return None
    base = 1 - (1 - weight["C"]) * (1 - weight["I"]) * (1 - weight["A"])
    impact = 7.52 * (base - 0.029) - 3.25 * (base - 0.02) ** 15 if changed else 6.42 * base
    if impact <= 0:
        return 0.0
    exploitability = 8.22 * weight["AV"] * weight["AC"] * privileges * weight["UI"]
    return _rounded_up(min((1.08 if changed else 1.0) * (impact + exploitability), 10.0))


def _rounded_up(score: float) -> float:
    """To one decimal, as the specification's appendix A has it, so that binary fractions do not add a tenth."""
    scaled = round(score * 100_000)
    return scaled / 100_000 if scaled % 10_000 == 0 else (math.floor(scaled / 10_000) + 1) / 10


def _spoken(specific: Mapping[str, Any]) -> Severity:
    word, score = specific.get("severity"), specific.get("score")
    levels = [Severity.UNKNOWN]
    if isinstance(word, str):
        levels.append(_WORDS.get(word.upper(), Severity.UNKNOWN))
    if isinstance(score, int | float) and not isinstance(score, bool):
        levels.append(level_of(score))
    return worst(levels)
