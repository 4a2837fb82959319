"""The Grafana dashboard asks for metrics that there are, by labels that they have."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from pilothouse.telemetry.catalogue import METRICS

ROOT = Path(__file__).parents[3]
TOOL = "tools/generate_dashboard.py"
SPECS = {spec.name: spec for spec in METRICS}


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / TOOL))


def test_the_file_is_up_to_date(tool: dict[str, Any]) -> None:
    assert tool["PAGE"].read_text() == tool["render"](), f"run {TOOL}"


def test_every_expression_is_of_metrics_and_labels_that_there_are(tool: dict[str, Any]) -> None:
    dashboard = json.loads(tool["render"]())
    used = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            assert expression.count("(") == expression.count(")")
            (name,) = set(re.findall(r"pilothouse_\w+", expression))
            spec = SPECS[name.removesuffix("_bucket")]
            used.add(spec.name)
            asked = set(re.findall(r"(\w+)(?:=~|!~)", expression))
            grouped = {
                label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")
            }
            legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert asked | grouped | legend <= {*spec.labels, "le"}, expression
            assert legend <= grouped or not grouped
    assert len(used) > len(METRICS) / 2


def test_panels_have_places_of_their_own(tool: dict[str, Any]) -> None:
    panels = json.loads(tool["render"]())["panels"]
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
