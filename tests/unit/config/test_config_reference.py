"""The generated reference of the fleet file is what the schema says now."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOL = "tools/generate_config_reference.py"


@pytest.mark.parametrize("name", ["fleet-file.md", "fleet.schema.json"])
def test_the_reference_is_up_to_date(name: str) -> None:
    rendered = runpy.run_path(str(ROOT / TOOL))["render"]()
    assert (ROOT / "docs" / "reference" / name).read_text() == rendered[name], f"run {TOOL}"
