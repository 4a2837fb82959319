from typing import Any

import pytest

from advisory_world import record
from pilothouse.model.posture import Severity
from pilothouse.policy.advisories.records import OsvAffected, OsvSeverity
from pilothouse.policy.advisories.severity import base_score, level_of, severity_of


# Vectors and scores from the examples document of CVSS 3.1.
@pytest.mark.parametrize(
    ("vector", "score"),
    [
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 9.8),
        ("CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:C/C:L/I:L/A:N", 6.4),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", 6.1),
        ("CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", 10.0),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", 0.0),
        ("CVSS:3.1/AV:N/AC:H/PR:N/UI:R/S:U/C:L/I:N/A:N", 3.1),
    ],
)
def test_base_scores(vector: str, score: float) -> None:
    assert base_score(vector) == score


@pytest.mark.parametrize(
    "vector", ["", "nonsense", "CVSS:4.0/AV:N/AC:L", "CVSS:3.1/AV:N", "CVSS:3.1/AV:X/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"]
)
def test_what_gives_no_score(vector: str) -> None:
    assert base_score(vector) is None


@pytest.mark.parametrize(
    ("score", "level"),
    [(0, "unknown"), (0.1, "low"), (3.9, "low"), (4.0, "medium"), (7.0, "high"), (8.9, "high"), (9.0, "critical")],
)
def test_levels(score: float, level: str) -> None:
    assert level_of(score) == level


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ({}, Severity.UNKNOWN),
        ({"severity": "moderate"}, Severity.MEDIUM),
        ({"severity": "LOW", "score": 9.1}, Severity.CRITICAL),
        ({"severity": ["odd"], "score": True}, Severity.UNKNOWN),
        ({"severity": "malicious"}, Severity.MALICIOUS),
    ],
)
def test_what_a_database_says(said: dict[str, Any], level: Severity) -> None:
    assert severity_of(record("X", database_specific=said)) is level


def test_the_worst_of_all_parts_counts() -> None:
    vector = OsvSeverity(type="CVSS_V3", score="CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H")
    of_package = record("X", affected=(OsvAffected(severity=(vector,)),), database_specific={"severity": "LOW"})
    assert severity_of(of_package) is Severity.CRITICAL
    assert severity_of(record("X", severity=(vector,))) is Severity.CRITICAL
